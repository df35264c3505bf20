"""The console's page and its assets, as this package has them, with what a browser may do there.

Every path of the console that is no asset is answered with the one page, which shows what belongs
to its path. Nothing is loaded from another place, and no script or style is within the page.
"""

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from importlib import resources
from pathlib import PurePath
from typing import NamedTuple

from werkzeug.wrappers import Request, Response

PAGE = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class Asset(NamedTuple):
    """A file that is served."""

    content: bytes
    media_type: str
    etag: str


def load_assets() -> Mapping[str, Asset]:
    """The files by name."""
    assets = {}
    for file in resources.files(__package__).joinpath("assets").iterdir():
        suffix = PurePath(file.name).suffix
        if suffix in _TYPES:
            content = file.read_bytes()
            etag = hashlib.sha256(content).hexdigest()[:32]
            assets[file.name] = Asset(content, _TYPES[suffix], etag)
    return assets


def response_with(asset: Asset, request: Request) -> Response:
    """The answer that has the asset, or says that the browser has it already."""
    response = Response(asset.content, content_type=asset.media_type)
    response.headers.extend(HEADERS)
    response.headers["Cache-Control"] = "no-cache"  # kept, and asked for each time
    response.set_etag(asset.etag)
    if request.if_none_match.contains(asset.etag):
        response.status_code = HTTPStatus.NOT_MODIFIED
        response.set_data(b"")
    return response
