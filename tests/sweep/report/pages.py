"""Results to make pages of, and a reader of pages."""

import html.parser

import numpy as np

from mu2_optax.sweep import SweepResult

RATES = 10.0 ** np.arange(-2, 3)
NASTY = "a <i>&\"'</script>"


def result(label, values, *, metric="test_accuracy", curve=False, errors=None, **info):
    """Three seeds that differ by 0, 0.01 and 0.02."""
    values = np.asarray(values, float)[:, None] + np.array([0.0, 0.01, 0.02])
    metrics = {metric: values}
    if curve:
        metrics["train_loss"] = np.linspace(1.0, 1 - values, 50, axis=-1)
    finished = np.ones(values.shape, bool)
    return SweepResult(
        metrics, {"learning_rate": RATES}, np.array([0, 1, 7]), finished, errors or {}, label, info
    )


def without_rate(label, value, **info):
    """An optimizer that has no learning rate."""
    metrics = {"test_accuracy": value + np.array([0.0, 0.01, 0.02])}
    return SweepResult(metrics, {}, np.array([0, 1, 7]), np.ones(3, bool), {}, label, info)


def results():
    return {
        "flat": result("flat", [0.7, 0.9, 0.9, 0.9, 0.9], curve=True),
        "steep": result("steep", [0.5, 0.8, 0.91, np.nan, np.nan], curve=True),
    }


class Page(html.parser.HTMLParser):
    """The elements of a page, its texts, and whether every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" not in self._open and "script" not in self._open:
            self.texts.append(data.strip())

    def all(self, tag, kind=None):
        found = [attributes for name, attributes in self.elements if name == tag]
        return [a for a in found if kind is None or kind in (a.get("class") or "").split()]
