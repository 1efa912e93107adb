"""Networks for other programs: ONNX files and programs of `torch.export`."""

from quatcaps.exporting.exported import FORMATS, Exported, export

__all__ = ["FORMATS", "Exported", "export"]
