import pytest

from documentation import ROOT, script

MUTANTS = script(ROOT / "tools" / "mutants.py").MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.right.strip()}")
def test_the_line_to_change_stands_in_its_file_once(mutant):
    """Equations that were written anew need new mutants; ``tools/mutants.py`` itself runs for half an hour."""
    assert (ROOT / "src" / "deeplinear" / mutant.file).read_text().count(mutant.right) == 1


@pytest.mark.parametrize("test", sorted({test for mutant in MUTANTS for test in mutant.tests}))
def test_the_tests_that_must_catch_it_are_there(test):
    assert (ROOT / "tests" / test.partition("::")[0]).exists()
