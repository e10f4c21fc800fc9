# SPDX-License-Identifier: Apache-2.0
"""A strict reader of the Prometheus text format, version 0.0.4, that also checks its conventions.

A family is one block: HELP, TYPE, then its samples. Names, escapes and numbers are those of the
format; counters end in _total and histograms are whole: ascending bounds up to +Inf, counts that do
not fall, _count equal to the last.
"""
import math
import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|Inf)|NaN")
_BASE_UNITS = ("_bytes", "_seconds", "_info")


class BadExposition(Exception):
    pass


def _require(condition, *what):
    if not condition:
        raise BadExposition(*what)


def _labels(text, line):
    found, at = {}, 0
    while text is not None and at < len(text):
        match = _LABEL.match(text, at)
        _require(match and match[1] not in found, "labels", line)
        found[match[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], match[2])
        at = match.end()
    return found


class Family:
    def __init__(self, name):
        self.name = name
        self.help = None
        self.type = None
        self.samples = {}  # (sample name, sorted labels) -> value

    def owns(self, sample_name):
        suffixes = ("_bucket", "_sum", "_count") if self.type == "histogram" else ("",)
        return any(sample_name == self.name + s for s in suffixes)


def parse(text):
    """Families by name, of text as bytes."""
    lines = text.decode("utf-8").split("\n")
    _require(lines.pop() == "", "the last line does not end")
    families, current = {}, None
    for line in lines:
        match = re.fullmatch(rf"# (HELP|TYPE) ({_NAME}) (.+)", line)
        if match:
            word, name, rest = match.groups()
            if word == "HELP":
                _require(name not in families, "a second family", line)
                current = families[name] = Family(name)
                current.help = rest
            else:
                _require(current and name == current.name and not current.type and not current.samples,
                         "TYPE out of place", line)
                _require(rest in ("counter", "gauge", "histogram"), "type", line)
                current.type = rest
            continue
        match = _SAMPLE.fullmatch(line)
        _require(match, "neither comment nor sample", line)
        _require(current and current.type and current.owns(match[1]), "sample out of its family", line)
        _require(_NUMBER.fullmatch(match[3]), "number", line)
        key = match[1], tuple(sorted(_labels(match[2], line).items()))
        _require(key not in current.samples, "a second sample", line)
        current.samples[key] = float(match[3])
    for family in families.values():
        _check(family)
    return families


def _check(family):
    name = family.name
    _require(family.type, "no TYPE", name)
    _require((family.type == "counter") == name.endswith("_total"), "counters end in _total", name)
    for unit in ("_kb", "_mb", "_ms", "_us", "_ns", "_milliseconds", "_percent"):
        _require(not re.search(unit + r"(_total)?$", name), "not a base unit", name)
    for (sample, _), value in family.samples.items():
        _require(not math.isnan(value) and (value >= 0 or family.type == "gauge"), "value", sample, value)
    if family.type == "histogram":
        for labels in {tuple(l for l in key[1] if l[0] != "le") for key in family.samples}:
            _check_histogram(family, labels)


def _check_histogram(family, labels):
    bounds = buckets(family, **dict(labels))
    _require(bounds and bounds[-1][0] == math.inf, "no +Inf", family.name, labels)
    for (bound, n), (next_bound, next_n) in zip(bounds, bounds[1:]):
        _require(bound < next_bound and n <= next_n, "bounds or counts fall", family.name, labels)
    count = family.samples.get((family.name + "_count", labels))
    total = family.samples.get((family.name + "_sum", labels))
    _require(count == bounds[-1][1], "count is not that of +Inf", family.name, labels)
    _require(total is not None and (total == 0 or count > 0), "sum", family.name, labels)


def buckets(family, **labels):
    """[(bound, count)] as they stand in the text."""
    want = set(labels.items())
    return [(float(dict(key)["le"]), value) for (name, key), value in family.samples.items()
            if name == family.name + "_bucket" and set(key) - {("le", dict(key)["le"])} == want]


def value(families, name, **labels):
    """One sample, by the name it has in the text."""
    for family in families.values():
        if family.owns(name):
            return family.samples[name, tuple(sorted(labels.items()))]
    raise KeyError(name)


def monotonic(families):
    """Every series that may only grow: counters and the parts of histograms."""
    return {key: v for f in families.values() if f.type != "gauge" for key, v in f.samples.items()}
