"""Methods: from public figures and settings to a plan; billboard, trees and rows behind one interface."""
