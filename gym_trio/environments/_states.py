"""The states of the USA and their postal abbreviations, the longer names first where one holds another."""

from __future__ import annotations

__all__ = ["STATES"]

_NAMES = (
    "district of columbia=DC, new hampshire=NH, new jersey=NJ, new mexico=NM, new york=NY, north carolina=NC, "
    "north dakota=ND, rhode island=RI, south carolina=SC, south dakota=SD, west virginia=WV, alabama=AL, alaska=AK, "
    "arizona=AZ, arkansas=AR, california=CA, colorado=CO, connecticut=CT, delaware=DE, florida=FL, georgia=GA, "
    "hawaii=HI, idaho=ID, illinois=IL, indiana=IN, iowa=IA, kansas=KS, kentucky=KY, louisiana=LA, maine=ME, "
    "maryland=MD, massachusetts=MA, michigan=MI, minnesota=MN, mississippi=MS, missouri=MO, montana=MT, nebraska=NE, "
    "nevada=NV, ohio=OH, oklahoma=OK, oregon=OR, pennsylvania=PA, tennessee=TN, texas=TX, utah=UT, vermont=VT, "
    "virginia=VA, washington=WA, wisconsin=WI, wyoming=WY"
)
STATES: tuple[tuple[str, str], ...] = tuple(
    (name, short) for entry in _NAMES.split(", ") for name, _, short in (entry.partition("="),)
)
