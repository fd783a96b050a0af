"""Our own icons, drawn on a 16 by 16 grid; always beside a word, never instead of one."""

from typing import Final

DRAWINGS: Final[dict[str, str]] = {
    "agent": (
        '<rect x="3" y="5.5" width="10" height="7.5" rx="2"/>'
        '<path d="M8 5.5V3M6 9v.6M10 9v.6M1.5 8.5v2M14.5 8.5v2"/><circle cx="8" cy="2.4" r=".6"/>'
    ),
    "arrow": '<path d="M2.5 8h11M9.5 4l4 4-4 4"/>',
    "audit": '<path d="M2.5 13.5v-4M6.2 13.5v-8M9.8 13.5v-6M13.5 13.5v-11"/>',
    "check": '<path d="m3 8.5 3.3 3.3L13 5"/>',
    "clock": '<circle cx="8" cy="8" r="6"/><path d="M8 4.6V8l2.3 1.5"/>',
    "copy": (
        '<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/>'
        '<path d="M3.5 10.5A1 1 0 0 1 2.5 9.5v-6a1 1 0 0 1 1-1h6a1 1 0 0 1 1 1"/>'
    ),
    "download": '<path d="M8 2.5v7.5M4.8 7.2 8 10.3l3.2-3.1M2.5 13.5h11"/>',
    "eye": (
        '<path d="M1.5 8s2.4-4.5 6.5-4.5S14.5 8 14.5 8 12.1 12.5 8 12.5 1.5 8 1.5 8z"/><circle cx="8" cy="8" r="2"/>'
    ),
    "gear": (
        '<circle cx="8" cy="8" r="2"/>'
        '<path d="M8 1.8v2M8 12.2v2M1.8 8h2M12.2 8h2M3.6 3.6 5 5M11 11l1.4 1.4M3.6 12.4 5 11M11 5l1.4-1.4"/>'
    ),
    "hold": '<circle cx="8" cy="8" r="6"/><path d="M4 12 12 4"/>',
    "inbox": (
        '<path d="M2 9.5 3.8 3.6A1.5 1.5 0 0 1 5.2 2.5h5.6a1.5 1.5 0 0 1 1.4 1.1L14 9.5v2.5'
        'a1.5 1.5 0 0 1-1.5 1.5h-9A1.5 1.5 0 0 1 2 12z"/>'
        '<path d="M2 9.5h3.2a1 1 0 0 1 .95.7 2 2 0 0 0 3.7 0 1 1 0 0 1 .95-.7H14"/>'
    ),
    "keys": (
        '<rect x="1.5" y="4" width="13" height="8" rx="1.5"/>'
        '<path d="M4.3 6.7h.1M7 6.7h.1M9.7 6.7h.1M12 6.7h.1M5 9.5h6"/>'
    ),
    "list": '<path d="M6 4h8M6 8h8M6 12h8"/><path d="M2.5 4h.5M2.5 8h.5M2.5 12h.5"/>',
    "lock": '<rect x="3" y="7" width="10" height="6.5" rx="1.5"/><path d="M5 7V5a3 3 0 0 1 6 0v2"/>',
    "more": '<path d="M3.5 8h.1M8 8h.1M12.5 8h.1"/>',
    "out": '<path d="M6 2.5H3.5a1 1 0 0 0-1 1v9a1 1 0 0 0 1 1H6M10 11l3-3-3-3M13 8H6"/>',
    "people": (
        '<circle cx="6" cy="5.2" r="2.4"/><path d="M1.8 13.2c.3-2.6 1.9-4 4.2-4s3.9 1.4 4.2 4"/>'
        '<path d="M10.6 3.1a2.3 2.3 0 0 1 0 4.3M11.9 9.6c1.3.5 2.1 1.7 2.3 3.6"/>'
    ),
    "play": '<path d="M4.5 3v10l8-5z"/>',
    "question": '<path d="M5.7 5.8A2.3 2.3 0 1 1 8.9 8c-.6.3-.9.7-.9 1.3v.4"/><path d="M8 12.3v.1"/>',
    "quote": ('<path d="M3 11V8a3 3 0 0 1 3-3M9.5 11V8a3 3 0 0 1 3-3"/><path d="M3 8.5h3V11H3zM9.5 8.5h3V11h-3z"/>'),
    "refresh": (
        '<path d="M13.3 7A5.4 5.4 0 0 0 3.5 5M2.7 9a5.4 5.4 0 0 0 9.8 2"/><path d="M3.3 2.2V5h2.8M12.7 13.8V11H9.9"/>'
    ),
    "right": '<path d="m6 3.5 4.5 4.5L6 12.5"/>',
    "search": '<circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 3 3"/>',
    "send": '<path d="M14 2 7 9M14 2 9.6 14 7 9 2 6.4z"/>',
    "shield": ('<path d="M8 1.8 13 3.7v4c0 3-2 5.3-5 6.5-3-1.2-5-3.5-5-6.5v-4z"/><path d="m5.9 8 1.5 1.5 2.8-3"/>'),
    "split": '<path d="M8 14V9.5L3.5 5M8 9.5 12.5 5"/><path d="M3 8V4.5h3.5M13 8V4.5H9.5"/>',
    "stream": (
        '<circle cx="3.5" cy="12.5" r="1"/><path d="M2.5 8a5.5 5.5 0 0 1 5.5 5.5M2.5 3.2A10.3 10.3 0 0 1 12.8 13.5"/>'
    ),
    "sun": (
        '<circle cx="8" cy="8" r="2.8"/>'
        '<path d="M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7"/>'
    ),
    "target": (
        '<ellipse cx="8" cy="4" rx="5" ry="2"/>'
        '<path d="M3 4v8c0 1.1 2.2 2 5 2s5-.9 5-2V4M3 8c0 1.1 2.2 2 5 2s5-.9 5-2"/>'
    ),
    "warn": '<path d="M8 2.2 14.4 13.3H1.6z"/><path d="M8 6.4v3M8 11.2v.1"/>',
    "x": '<path d="m4 4 8 8M12 4l-8 8"/>',
}
