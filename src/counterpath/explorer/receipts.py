"""The receipt of a person's plans, shown as it will be printed."""

import datetime

from nicegui import ui

from counterpath.explanation import Explanation
from counterpath.explanation.report.receipt import receipt
from counterpath.explorer import elements

FILE = "receipt.html"


class ReceiptDialog:
    """A dialog with the receipt, which can be printed and downloaded.

    Args:
        model: What the model is called.
    """

    def __init__(self, model: str) -> None:
        self._model, self._page = model, ""
        with ui.dialog() as self._dialog, ui.card().classes("cp-receipt"):
            self._dialog.classes("cp-dialog")
            elements.describe(self._dialog, aria_labelledby="receipt-title")
            with ui.element("div").classes("cp-row"):
                elements.text("h2", "Receipt", "cp-title cp-spread", id="receipt-title")
                elements.button("Print", self._print, name="Print the receipt")
                elements.button("Download", self._download, name="Download the receipt")
                elements.button("Close", self._dialog.close, "flat dense", "Close the receipt")
            # It runs no script, and what is in it cannot reach this page; printing it is ours to ask.
            self._frame = elements.box(
                "iframe", "cp-receipt-page", title="The receipt", sandbox="allow-same-origin allow-modals"
            )

    def show(self, result: Explanation, label: str) -> None:
        """Show the receipt of the plans of one person."""
        self._page = receipt(result, model=self._model, day=datetime.date.today(), person=label)
        elements.describe(self._frame, srcdoc=self._page)
        self._frame.update()
        self._dialog.open()

    def _print(self) -> None:
        ui.run_javascript(f"getElement({self._frame.id}).contentWindow.print()")

    def _download(self) -> None:
        ui.download.content(self._page.encode(), FILE, "text/html")
