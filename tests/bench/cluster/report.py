# SPDX-License-Identifier: Apache-2.0
"""Rows, printed as a table and kept as JSON: the keys of tests/bench/lib/report.h."""
import json

AT_LEAST, AT_MOST = "at least", "at most"


class Report:
    def __init__(self):
        self.rows = []
        print(f"{'job':<22} {'mode':<12} {'value':>12} {'unit':<12} {'against':<24} {'ratio':>7} {'bar':>8} {'pass':>5} "
              f"{'p50':>12} {'cpu s/GB':>9}", flush=True)

    def add(self, job, against, mode, *, value=None, unit="", ratio=None, kind=AT_LEAST, bar=None, p50_us=None,
            cpu_s_per_gb=None):
        """The bar is for the ratio, or for the value where there is no ratio. No bar: printed only."""
        compared = value if ratio is None else ratio
        passed = None
        if bar is not None and compared is not None:
            passed = compared >= bar if kind == AT_LEAST else compared <= bar
        self.rows.append({"job": job, "against": against, "mode": mode, "ratio": ratio, "bar": bar, "pass": passed,
                          "p50_us": p50_us, "cpu_s_per_gb": cpu_s_per_gb, "value": value, "unit": unit})
        sign = "<=" if kind == AT_MOST else ""
        print(f"{job:<22} {mode:<12} {_number(value):>12} {unit:<12} {against:<24} {_number(ratio, 2):>7} "
              f"{'-' if bar is None else f'{sign}{bar:g}':>8} {_verdict(passed):>5} {_number(p50_us, 1, ' us'):>12} "
              f"{_number(cpu_s_per_gb, 3):>9}", flush=True)

    @staticmethod
    def skip(job, why):
        print(f"{job:<22} skipped: {why}", flush=True)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as out:
            out.write("[\n" + ",\n".join("  " + json.dumps(row) for row in self.rows) + "\n]\n")


def _verdict(passed):
    return "-" if passed is None else "yes" if passed else "NO"


def _number(value, digits=None, unit=""):
    if value is None:
        return "-"
    if digits is None:
        digits = 0 if abs(value) >= 1000 else 2
    return f"{value:.{digits}f}{unit}"
