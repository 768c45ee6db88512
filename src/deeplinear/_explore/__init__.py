"""The explorer: a local page on which a problem's controls move and theory follows.

Starlette and uvicorn serve it and Plotly draws it, from the copy that its Python package brings, so that it works
without a network. Panel, Dash and NiceGUI were weighed and left: they keep a session on the server and
send every change of a widget through it, while here the whole state stands in the address, each request is
complete in itself, and a request that is given up ends its work at once.

``controls`` and ``presets`` say what the page shows, ``problems`` reads what it asks for, ``tasks`` does it in
processes of their own (``worker``, ``pool``), ``app`` is the web side, ``code`` writes a view as Python and ``serve``
starts it all.
"""
