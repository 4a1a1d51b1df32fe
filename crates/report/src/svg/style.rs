//! The colours of the drawing.

/// Styles, bound to the class of the root so that they leave a page around it alone.
///
/// The hues are Okabe and Ito's (blue, vermilion, bluish green), which readers of every kind of
/// colour vision tell apart; the steps of the matrix differ in lightness alone. In both themes
/// words have a contrast of at least 4.5 to what is behind them (WCAG 2.1, 1.4.3).
pub(super) const CSS: &str = "
.homenode-topology .paper{fill:#ffffff}
.homenode-topology text{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;\
font-size:11px;fill:#1b1f24}
.homenode-topology .small{font-size:9px}
.homenode-topology .head{font-size:13px;font-weight:bold}
.homenode-topology .headline{font-size:16px;font-weight:bold;\
font-family:system-ui,'DejaVu Sans',sans-serif}
.homenode-topology .faint{fill:#57606a}
.homenode-topology .end{text-anchor:end}
.homenode-topology .middle{text-anchor:middle}
.homenode-topology .package>rect{fill:#f4f6f8;stroke:#8c959f;rx:8px}
.homenode-topology .body{fill:#e3effa;stroke:#0072b2;stroke-width:1.5px;rx:6px}
.homenode-topology .cpuless .body{fill:#fdebdc;stroke:#d55e00;stroke-dasharray:5 3}
.homenode-topology .devices .body{fill:#e0f3ec;stroke:#009e73}
.homenode-topology .memoryless .gauge{fill:url(#homenode-hatch)}
.homenode-topology .memoryless .body{stroke-width:2.5px;stroke:#57606a}
.homenode-topology .hatch{stroke:#57606a;stroke-width:2px}
.homenode-topology .core{fill:#ffffff;stroke:#0072b2;stroke-width:1px}
.homenode-topology .cache{fill:#cfe3f5;stroke:#0072b2;stroke-width:1px}
.homenode-topology .shared{stroke-dasharray:4 2}
.homenode-topology .gauge{fill:#ffffff;stroke:#57606a;stroke-width:1px}
.homenode-topology .used{fill:#57606a}
.homenode-topology .link path{fill:none;stroke:#57606a;stroke-width:1.5px}
.homenode-topology .link.wide path{stroke-width:4px}
.homenode-topology .link.outer path{stroke:#d55e00;stroke-dasharray:5 3}
.homenode-topology .link.device path{stroke:#009e73}
.homenode-topology .tag{fill:#ffffff;stroke:none;rx:3px}
.homenode-topology .cell rect{stroke:#ffffff;stroke-width:1px;fill:url(#homenode-hatch)}
.homenode-topology .tiny rect{stroke:none;shape-rendering:crispEdges}
.homenode-topology .cell text{fill:#1b1f24}
.homenode-topology .step-0 rect{fill:#f0f4f8}
.homenode-topology .step-1 rect{fill:#d6e6f4}
.homenode-topology .step-2 rect{fill:#abcfe6}
.homenode-topology .step-3 rect{fill:#7ab6dd}
.homenode-topology .step-4 rect{fill:#2470a8}
.homenode-topology .step-5 rect{fill:#12538f}
.homenode-topology .step-6 rect{fill:#08306b}
.homenode-topology .step-4 text,.homenode-topology .step-5 text,\
.homenode-topology .step-6 text{fill:#ffffff}
.homenode-topology .series-0 polyline{stroke:#0072b2}
.homenode-topology .series-0 path,.homenode-topology .series-0 polygon{fill:#0072b2}
.homenode-topology .series-1 polyline{stroke:#d55e00}
.homenode-topology .series-1 path,.homenode-topology .series-1 polygon{fill:#d55e00}
.homenode-topology .series-2 polyline{stroke:#009e73}
.homenode-topology .series-2 path,.homenode-topology .series-2 polygon{fill:#009e73}
.homenode-topology .series-3 polyline{stroke:#a0527f}
.homenode-topology .series-3 path,.homenode-topology .series-3 polygon{fill:#a0527f}
.homenode-topology .series-4 polyline{stroke:#57606a}
.homenode-topology .series-4 path,.homenode-topology .series-4 polygon{fill:#57606a}
.homenode-topology .series-5 polyline{stroke:#8a6d00}
.homenode-topology .series-5 path,.homenode-topology .series-5 polygon{fill:#8a6d00}
.homenode-topology .curve polyline{fill:none;stroke-width:1.5px}
.homenode-topology .curve polygon{opacity:.18}
.homenode-topology .axis path{stroke:#d0d7de;stroke-width:1px}
@media (prefers-color-scheme:dark){
.homenode-topology .series-0 polyline{stroke:#56b4e9}
.homenode-topology .series-0 path,.homenode-topology .series-0 polygon{fill:#56b4e9}
.homenode-topology .series-1 polyline{stroke:#f0883e}
.homenode-topology .series-1 path,.homenode-topology .series-1 polygon{fill:#f0883e}
.homenode-topology .series-2 polyline{stroke:#2fbf94}
.homenode-topology .series-2 path,.homenode-topology .series-2 polygon{fill:#2fbf94}
.homenode-topology .series-3 polyline{stroke:#cc79a7}
.homenode-topology .series-3 path,.homenode-topology .series-3 polygon{fill:#cc79a7}
.homenode-topology .series-4 polyline{stroke:#9ea7b3}
.homenode-topology .series-4 path,.homenode-topology .series-4 polygon{fill:#9ea7b3}
.homenode-topology .series-5 polyline{stroke:#e6c84a}
.homenode-topology .series-5 path,.homenode-topology .series-5 polygon{fill:#e6c84a}
.homenode-topology .axis path{stroke:#30363d}
.homenode-topology .paper,.homenode-topology .tag{fill:#0d1117}
.homenode-topology text{fill:#e6edf3}
.homenode-topology .faint{fill:#9ea7b3}
.homenode-topology .package>rect{fill:#161b22;stroke:#6e7681}
.homenode-topology .body{fill:#10263b;stroke:#56b4e9}
.homenode-topology .cpuless .body{fill:#3a2213;stroke:#f0883e}
.homenode-topology .devices .body{fill:#0c2b22;stroke:#2fbf94}
.homenode-topology .memoryless .body{stroke:#9ea7b3}
.homenode-topology .hatch{stroke:#9ea7b3}
.homenode-topology .core,.homenode-topology .gauge{fill:#0d1117}
.homenode-topology .core,.homenode-topology .cache{stroke:#56b4e9}
.homenode-topology .cache{fill:#1d3d5c}
.homenode-topology .gauge{stroke:#9ea7b3}
.homenode-topology .used{fill:#9ea7b3}
.homenode-topology .link path{stroke:#9ea7b3}
.homenode-topology .link.outer path{stroke:#f0883e}
.homenode-topology .link.device path{stroke:#2fbf94}
.homenode-topology .cell:not(.tiny) rect{stroke:#0d1117}
}
";
