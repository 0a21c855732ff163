"""Rewrites every generated region; with `--charts` also the charts of the pages."""

import sys

from benchmarks.pages import pages, rewritten

for page in pages():
    page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
if "--charts" in sys.argv:
    from benchmarks.pages.charts import draw_all

    draw_all()
