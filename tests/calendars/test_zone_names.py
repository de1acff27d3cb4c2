"""The names of zones that Windows and Google show, and what people write in the same way.

A name means a place, not just an offset: the clocks of the whole year are those of the place.
"""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from jobs.calendars.zone_names import guessed_zone

WINDOWS = """\
(UTC-01:00) Azores | Azores Standard Time
(UTC-01:00) Cabo Verde Is. | Cape Verde Standard Time
(UTC-02:00) Coordinated Universal Time-02 | UTC-02
(UTC-02:00) Greenland | Greenland Standard Time
(UTC-02:00) Mid-Atlantic - Old | Mid-Atlantic Standard Time
(UTC-03:00) Araguaina | Tocantins Standard Time
(UTC-03:00) Asuncion | Paraguay Standard Time
(UTC-03:00) Brasilia | E. South America Standard Time
(UTC-03:00) Cayenne, Fortaleza | SA Eastern Standard Time
(UTC-03:00) City of Buenos Aires | Argentina Standard Time
(UTC-03:00) Montevideo | Montevideo Standard Time
(UTC-03:00) Punta Arenas | Magallanes Standard Time
(UTC-03:00) Saint Pierre and Miquelon | Saint Pierre Standard Time
(UTC-03:00) Salvador | Bahia Standard Time
(UTC-03:30) Newfoundland | Newfoundland Standard Time
(UTC-04:00) Atlantic Time (Canada) | Atlantic Standard Time
(UTC-04:00) Caracas | Venezuela Standard Time
(UTC-04:00) Cuiaba | Central Brazilian Standard Time
(UTC-04:00) Georgetown, La Paz, Manaus, San Juan | SA Western Standard Time
(UTC-04:00) Santiago | Pacific SA Standard Time
(UTC-05:00) Bogota, Lima, Quito, Rio Branco | SA Pacific Standard Time
(UTC-05:00) Chetumal | Eastern Standard Time (Mexico)
(UTC-05:00) Eastern Time (US & Canada) | Eastern Standard Time
(UTC-05:00) Haiti | Haiti Standard Time
(UTC-05:00) Havana | Cuba Standard Time
(UTC-05:00) Indiana (East) | US Eastern Standard Time
(UTC-05:00) Turks and Caicos | Turks And Caicos Standard Time
(UTC-06:00) Central America | Central America Standard Time
(UTC-06:00) Central Time (US & Canada) | Central Standard Time
(UTC-06:00) Easter Island | Easter Island Standard Time
(UTC-06:00) Guadalajara, Mexico City, Monterrey | Central Standard Time (Mexico)
(UTC-06:00) Saskatchewan | Canada Central Standard Time
(UTC-07:00) Arizona | US Mountain Standard Time
(UTC-07:00) La Paz, Mazatlan | Mountain Standard Time (Mexico)
(UTC-07:00) Chihuahua, La Paz, Mazatlan | Mountain Standard Time (Mexico)
(UTC-07:00) Mountain Time (US & Canada) | Mountain Standard Time
(UTC-07:00) Yukon | Yukon Standard Time
(UTC-08:00) Baja California | Pacific Standard Time (Mexico)
(UTC-08:00) Coordinated Universal Time-08 | UTC-08
(UTC-08:00) Pacific Time (US & Canada) | Pacific Standard Time
(UTC-09:00) Alaska | Alaskan Standard Time
(UTC-09:00) Coordinated Universal Time-09 | UTC-09
(UTC-09:30) Marquesas Islands | Marquesas Standard Time
(UTC-10:00) Aleutian Islands | Aleutian Standard Time
(UTC-10:00) Hawaii | Hawaiian Standard Time
(UTC-11:00) Coordinated Universal Time-11 | UTC-11
(UTC-12:00) International Date Line West | Dateline Standard Time
(UTC) Coordinated Universal Time | UTC
(UTC+00:00) Dublin, Edinburgh, Lisbon, London | GMT Standard Time
(UTC+00:00) Monrovia, Reykjavik | Greenwich Standard Time
(UTC+00:00) Sao Tome | Sao Tome Standard Time
(UTC+01:00) Amsterdam, Berlin, Bern, Rome, Stockholm, Vienna | W. Europe Standard Time
(UTC+01:00) Belgrade, Bratislava, Budapest, Ljubljana, Prague | Central Europe Standard Time
(UTC+01:00) Brussels, Copenhagen, Madrid, Paris | Romance Standard Time
(UTC+01:00) Casablanca | Morocco Standard Time
(UTC+01:00) Sarajevo, Skopje, Warsaw, Zagreb | Central European Standard Time
(UTC+01:00) West Central Africa | W. Central Africa Standard Time
(UTC+02:00) Athens, Bucharest | GTB Standard Time
(UTC+02:00) Beirut | Middle East Standard Time
(UTC+02:00) Cairo | Egypt Standard Time
(UTC+02:00) Chisinau | E. Europe Standard Time
(UTC+02:00) Gaza, Hebron | West Bank Standard Time
(UTC+02:00) Harare, Pretoria | South Africa Standard Time
(UTC+02:00) Helsinki, Kyiv, Riga, Sofia, Tallinn, Vilnius | FLE Standard Time
(UTC+02:00) Jerusalem | Israel Standard Time
(UTC+02:00) Juba | South Sudan Standard Time
(UTC+02:00) Kaliningrad | Kaliningrad Standard Time
(UTC+02:00) Khartoum | Sudan Standard Time
(UTC+02:00) Tripoli | Libya Standard Time
(UTC+02:00) Windhoek | Namibia Standard Time
(UTC+03:00) Amman | Jordan Standard Time
(UTC+03:00) Baghdad | Arabic Standard Time
(UTC+03:00) Damascus | Syria Standard Time
(UTC+03:00) Istanbul | Turkey Standard Time
(UTC+03:00) Kuwait, Riyadh | Arab Standard Time
(UTC+03:00) Minsk | Belarus Standard Time
(UTC+03:00) Moscow, St. Petersburg | Russian Standard Time
(UTC+03:00) Nairobi | E. Africa Standard Time
(UTC+03:00) Volgograd | Volgograd Standard Time
(UTC+03:30) Tehran | Iran Standard Time
(UTC+04:00) Abu Dhabi, Muscat | Arabian Standard Time
(UTC+04:00) Astrakhan, Ulyanovsk | Astrakhan Standard Time
(UTC+04:00) Baku | Azerbaijan Standard Time
(UTC+04:00) Izhevsk, Samara | Russia Time Zone 3
(UTC+04:00) Port Louis | Mauritius Standard Time
(UTC+04:00) Saratov | Saratov Standard Time
(UTC+04:00) Tbilisi | Georgian Standard Time
(UTC+04:00) Yerevan | Caucasus Standard Time
(UTC+04:30) Kabul | Afghanistan Standard Time
(UTC+05:00) Ashgabat, Tashkent | West Asia Standard Time
(UTC+05:00) Astana | Qyzylorda Standard Time
(UTC+05:00) Ekaterinburg | Ekaterinburg Standard Time
(UTC+05:00) Islamabad, Karachi | Pakistan Standard Time
(UTC+05:30) Chennai, Kolkata, Mumbai, New Delhi | India Standard Time
(UTC+05:30) Sri Jayawardenepura | Sri Lanka Standard Time
(UTC+05:45) Kathmandu | Nepal Standard Time
(UTC+06:00) Bishkek | Central Asia Standard Time
(UTC+06:00) Dhaka | Bangladesh Standard Time
(UTC+06:00) Omsk | Omsk Standard Time
(UTC+06:30) Yangon (Rangoon) | Myanmar Standard Time
(UTC+07:00) Bangkok, Hanoi, Jakarta | SE Asia Standard Time
(UTC+07:00) Barnaul, Gorno-Altaysk | Altai Standard Time
(UTC+07:00) Hovd | W. Mongolia Standard Time
(UTC+07:00) Krasnoyarsk | North Asia Standard Time
(UTC+07:00) Novosibirsk | N. Central Asia Standard Time
(UTC+07:00) Tomsk | Tomsk Standard Time
(UTC+08:00) Beijing, Chongqing, Hong Kong, Urumqi | China Standard Time
(UTC+08:00) Irkutsk | North Asia East Standard Time
(UTC+08:00) Kuala Lumpur, Singapore | Singapore Standard Time
(UTC+08:00) Perth | W. Australia Standard Time
(UTC+08:00) Taipei | Taipei Standard Time
(UTC+08:00) Ulaanbaatar | Ulaanbaatar Standard Time
(UTC+08:45) Eucla | Aus Central W. Standard Time
(UTC+09:00) Chita | Transbaikal Standard Time
(UTC+09:00) Osaka, Sapporo, Tokyo | Tokyo Standard Time
(UTC+09:00) Pyongyang | North Korea Standard Time
(UTC+09:00) Seoul | Korea Standard Time
(UTC+09:00) Yakutsk | Yakutsk Standard Time
(UTC+09:30) Adelaide | Cen. Australia Standard Time
(UTC+09:30) Darwin | AUS Central Standard Time
(UTC+10:00) Brisbane | E. Australia Standard Time
(UTC+10:00) Canberra, Melbourne, Sydney | AUS Eastern Standard Time
(UTC+10:00) Guam, Port Moresby | West Pacific Standard Time
(UTC+10:00) Hobart | Tasmania Standard Time
(UTC+10:00) Vladivostok | Vladivostok Standard Time
(UTC+10:30) Lord Howe Island | Lord Howe Standard Time
(UTC+11:00) Bougainville Island | Bougainville Standard Time
(UTC+11:00) Chokurdakh | Russia Time Zone 10
(UTC+11:00) Magadan | Magadan Standard Time
(UTC+11:00) Norfolk Island | Norfolk Standard Time
(UTC+11:00) Sakhalin | Sakhalin Standard Time
(UTC+11:00) Solomon Is., New Caledonia | Central Pacific Standard Time
(UTC+12:00) Anadyr, Petropavlovsk-Kamchatsky | Russia Time Zone 11
(UTC+12:00) Auckland, Wellington | New Zealand Standard Time
(UTC+12:00) Coordinated Universal Time+12 | UTC+12
(UTC+12:00) Fiji | Fiji Standard Time
(UTC+12:00) Petropavlovsk-Kamchatsky - Old | Kamchatka Standard Time
(UTC+12:45) Chatham Islands | Chatham Islands Standard Time
(UTC+13:00) Coordinated Universal Time+13 | UTC+13
(UTC+13:00) Nuku'alofa | Tonga Standard Time
(UTC+13:00) Samoa | Samoa Standard Time
(UTC+14:00) Kiritimati Island | Line Islands Standard Time
"""
"""What Windows shows, and its own name of the zone. Of several cities any may be the zone."""

GOOGLE = """\
(GMT-10:00) Hawaii Time | Pacific/Honolulu
(GMT-09:00) Alaska Time | America/Anchorage
(GMT-08:00) Pacific Time | America/Los_Angeles
(GMT-08:00) Pacific Time - Tijuana | America/Tijuana
(GMT-08:00) Pacific Time - Vancouver | America/Vancouver
(GMT-07:00) Pacific Time - Whitehorse | America/Whitehorse
(GMT-07:00) Mountain Time - Dawson Creek | America/Dawson_Creek
(GMT-07:00) Mountain Time | America/Denver
(GMT-07:00) Mountain Time - Edmonton | America/Edmonton
(GMT-07:00) Mountain Time - Hermosillo | America/Hermosillo
(GMT-07:00) Mountain Time - Chihuahua, Mazatlan | America/Mazatlan
(GMT-07:00) Mountain Time - Arizona | America/Phoenix
(GMT-07:00) Mountain Time - Arizona / Phoenix / Hermosillo | America/Phoenix
(GMT-07:00) Mountain Time - Yellowknife | America/Yellowknife
(GMT-06:00) Central Time | America/Chicago
(GMT-06:00) Central Time - Mexico City | America/Mexico_City
(GMT-06:00) Central Time - Mexico City, Monterrey | America/Mexico_City
(GMT-06:00) Central Time - Regina | America/Regina
(UTC-06:00) Central Time (Saskatchewan) | America/Regina
(GMT-06:00) Central Time - Tegucigalpa | America/Tegucigalpa
(GMT-06:00) Central Time - Winnipeg | America/Winnipeg
(GMT-05:00) Central Time - Cancun | America/Cancun
(GMT-05:00) Eastern Time - Iqaluit | America/Iqaluit
(GMT-05:00) Eastern Time | America/New_York
(GMT-05:00) Eastern Time - Toronto | America/Toronto
(GMT-04:00) Atlantic Time - Halifax | America/Halifax
(GMT-03:30) Newfoundland Time - St. Johns | America/St_Johns
(GMT+00:00) GMT (no daylight saving) | UTC
(GMT+01:00) Central European Time - Belgrade | Europe/Belgrade
(GMT+01:00) Central European Time - Prague | Europe/Prague
(GMT+02:00) Moscow-01 - Kaliningrad | Europe/Kaliningrad
(GMT+03:00) Moscow+00 - Moscow | Europe/Moscow
(GMT+04:00) Moscow+01 - Samara | Europe/Samara
(GMT+05:00) Moscow+02 - Yekaterinburg | Asia/Yekaterinburg
(GMT+05:30) India Standard Time | Asia/Calcutta
(GMT+06:00) Moscow+03 - Omsk, Novosibirsk | Asia/Omsk
(GMT+07:00) Moscow+04 - Krasnoyarsk | Asia/Krasnoyarsk
(GMT+08:00) China Time - Beijing | Asia/Shanghai
(GMT+08:00) Western Time - Perth | Australia/Perth
(GMT+09:30) Central Time - Adelaide | Australia/Adelaide
(GMT+09:30) Central Time - Darwin | Australia/Darwin
(GMT+10:00) Eastern Time - Brisbane | Australia/Brisbane
(GMT+10:00) Eastern Time - Hobart | Australia/Hobart
(GMT+10:00) Eastern Time - Melbourne, Sydney | Australia/Melbourne
(GMT-05:00) Eastern Time - Springfield | America/New_York
(UTC-05:00) Eastern Time (EST/EDT) | America/New_York
(GMT-05:00) Eastern Time - Melbourne | Etc/GMT+5
(GMT-07:00) Mountain Standard Time - Phoenix | America/Phoenix
(GMT-05:00) Eastern Standard Time - Jamaica | America/Jamaica
(GMT-07:00) Mexican Pacific Standard Time - Mazatlan | America/Mazatlan
(GMT-06:00) Central Time - Mexico | Etc/GMT+6
(GMT+10:00) Eastern Time - Nowhere | Etc/GMT-10
(GMT+10:00) EST (Australia) | Etc/GMT-10
"""

WITHOUT_AN_OFFSET = """\
Eastern Time - Melbourne, Sydney | Australia/Melbourne
Central Time - Adelaide | Australia/Adelaide
CST (China) | Asia/Shanghai
China Standard Time (CST) | Asia/Shanghai
CST (Cuba) | America/Havana
Eastern Time - Brisbane | Australia/Brisbane
Central Time (Mexico) | America/Mexico_City
Pacific Time (Mexico) | America/Tijuana
EST (Australia) | none
Eastern Time (Queensland) | Australia/Queensland
Eastern Time - Queensland | Australia/Queensland
Eastern Time (United States) | America/New_York
Eastern Time - US & Canada | America/New_York
Eastern Time (EST/EDT) | America/New_York
EST (UTC-5) | America/New_York
EST (UTC+10) | Etc/GMT-10
Mountain Standard Time (MST) | America/Denver
Central European Time (CET) | Europe/Warsaw
London (GMT) | Europe/London
Melbourne (Eastern) | Australia/Melbourne
Europe/Paris (France) | Europe/Paris
CST (US) | America/Chicago
Eastern Time, Ohio | America/New_York
Mountain Time (Arizona) | America/Phoenix
Atlantic Standard Time - Puerto Rico | America/Puerto_Rico
Eastern Time () | America/New_York
EST (no DST) | none
Central Time - Nowhere | none
Central Daylight Time (Mexico) | America/Mexico_City
Eastern Time (US, Canada) | America/New_York
Eastern Time (U.S. & Canada) | America/New_York
GMT (Greenwich Mean Time) | UTC
Indiana (West) | none
CEST (UTC+2) | CET
"""


def pairs(table: str) -> list[tuple[str, str]]:
    split = (line.partition(" | ") for line in table.splitlines())
    return [(name, "" if zone == "none" else zone) for name, _, zone in split]


def clocks(zone: str) -> list[timedelta | None]:
    """How far east it is, each month."""
    months = (datetime(2026, month, 1, 12, tzinfo=ZoneInfo(zone)) for month in range(1, 13))
    return [moment.utcoffset() for moment in months]


def test_what_windows_shows_has_the_clocks_of_its_zone() -> None:
    for shown, windows in pairs(WINDOWS):
        assert clocks(guessed_zone(shown)) == clocks(guessed_zone(windows)), shown


def test_a_place_decides_which_eastern_or_central_time_is_meant() -> None:
    named = pairs(GOOGLE + WITHOUT_AN_OFFSET)
    assert [(name, guessed_zone(name)) for name, _ in named] == named
