// Set before anything is drawn, so that a dark page never flashes white.
const wanted = localStorage.getItem("theme");
if (wanted) document.documentElement.dataset.theme = wanted;
