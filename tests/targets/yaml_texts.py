"""Texts that a YAML reader may take for something else."""

from __future__ import annotations

from hypothesis import strategies as st

MISREAD = (
    # numbers of YAML 1.1, YAML 1.2, Go or Python
    "1e3", "1E3", "1e+3", "08", "017", "0o17", "0O17", "0x1F", "0X1f", "0b11", "0B1", "0x1p",
    "0x1p-2", "0x1.8p1", "1_000",
    "1_0.5", "+1", "-0", "1.", ".5", "-.5", "+.5e3", "1.5e3", "12:30", "1:30:00", "-1:30", "0_7",
    "1,000", "00", "9" * 30,
    ".inf", "+.inf", "-.INF", ".Inf", ".nan", ".NaN", "inf", "NaN", "Infinity", "0.", "1e400",
    "-1e-400", "_1", "1__0",
    # booleans and null
    "y", "Y", "n", "N", "yes", "Yes", "YES", "no", "NO", "on", "On", "OFF", "off", "true", "True",
    "TRUE", "false", "FALSE",
    "tRUE", "~", "null", "Null", "NULL", "nULL", "None", "nil", "",
    # dates and times
    "2026-11-25", "2026-1-2", "2026-11-25T12:30:00Z", "2026-11-25 12:30:00",
    "2026-11-25t12:30:00.5+01:00", "2026-11",
    "2026-1-2 3:4:5", "12:30:45.5",
    # syntax
    "=", "<<", "?", "? a", "-", "- a", "--", "---", "...", "--- a", ":", ": a", "a: b", "a:",
    "a #b", "#a", "@a", "`a", "%a",
    "!a", "!!str a", "&a", "*a", "|", ">", "|-", "{}", "{a: b}", "[]", "[a", ",", "'", '"', "''",
    "'a'", '"a"', "it's",
    "a\\nb", "\\", "\\u0041", "{{ a }}", "${A}", "$(A)",
    # spaces and line ends
    " ", "  ", " a", "a ", "\t", "\ta", "a\tb", "a\t", "a\n", "\na", "\n", "\n\n", "a\n\n", "a\nb",
    "a\n b", " a\nb", "a \nb",
    "a\n\n\nb\n", "\ta\nb", "a\r\nb", "\r", "a\rb", "a\n#b", "a\n---\nb", "a\n...\nb", "  a\n b\n",
    "\n  a", "a\n \nb", "a\n\t\nb",
    # characters that some readers take for line ends, or do not accept
    "\x85", "a\x85b", "a\x85\nb", "\u2028", "a\u2028b", "\u2029a", "\ufeff", "\ufeffa", "a\ufeff",
    "a\nb\ufeff", "\xa0", "\x7f",
    "\x80", "\x9f", "\x01", "\x1b[0m", "\ufffd", "\ufffe", "\uffff", "\U0001f600", "\U0010ffff",
    "a\n\U0001f600", "\u200b", "\xad",
    "\u202e", "é",
)  # fmt: skip

_ALPHABET = (
    "0123456789abefinoptxyzEINOTXY_+-.:,=<~!&*?@#%|>'\"\\{}[]()$` \n\t\r\x85\u2028\u2029\ufeff\x7f\x80é\U0001f600"
)
TEXTS = st.one_of(
    st.sampled_from(MISREAD),
    st.text(st.sampled_from(_ALPHABET), max_size=12),
    st.from_regex(r"[-+]?[0-9.][-0-9a-fA-FxXoOpP_:.eE+ tTzZ]{0,10}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12),
)
