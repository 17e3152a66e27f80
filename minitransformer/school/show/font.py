"""The font of formulas: with it they look the same on every machine, and roots and brackets grow with what they hold.

formulas.woff2 is a part of STIX Two Math: the letters and signs of formulas, and their larger forms. Its licence is the
SIL Open Font License (formulas.OFL.txt). fontTools made it, from the font that the package ziamath 0.13 contains:

    pyftsubset STIXTwoMath-Regular.ttf --flavor=woff2 --output-file=formulas.woff2 --no-hinting --layout-features= \
        --no-bidi-closure --name-IDs=0,1,2,3,4,5,6,7,13,14 --unicodes=CHARACTERS
"""

import base64
from importlib import resources

CHARACTERS = (
    "20-7E,A0,AC,B1,B7,D7,F7,2C6,2026,2032,"  # text and marks
    "1D434-1D454,210E,1D456-1D467,"  # italic, which a letter on its own becomes
    "1D6E4,1D6E5,1D6E9,1D6EC,1D6F1,1D6F4,1D6F7,1D6F9-1D71B,2112,2113,211D,"
    "2190,2192,21A6,2202,2207-2209,2211,2212,221A,221D,221E,2225,2227,2228,2248,2260,2264,2265,2299,22C5,"  # signs
    "2308-230B"  # the brackets of a number that is rounded
)


def style() -> str:
    """The rule of a style sheet that names the font `formulas` and contains it: a page need not fetch it."""
    font = base64.b64encode(resources.files(__package__).joinpath("formulas.woff2").read_bytes()).decode()
    return f'@font-face {{ font-family: formulas; src: url("data:font/woff2;base64,{font}"); size-adjust: 112%; }}\n'
