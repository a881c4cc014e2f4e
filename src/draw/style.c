/* The style sheet. Colours are Okabe and Ito's, which colour-blind readers tell apart, lighter on dark ground; text
 * keeps a contrast of at least 4.5 : 1 (tests/cli/html.sh measures it). */
#include "draw/draw_int.h"

/* The colours of parts, and of the labels on them: 4.5 : 1 on each. */
#define DARK ""
#define WHITE ";--t:#fff"
#define FO_EACH_PART(X)         \
	X(0, "#0072b2", WHITE)  \
	X(1, "#e69f00", DARK)   \
	X(2, "#56b4e9", DARK)   \
	X(3, "#d98ab3", DARK)   \
	X(4, "#00a57a", DARK)   \
	X(5, "#f0e442", DARK)   \
	X(6, "#ec7a2f", DARK)   \
	X(7, "#5b6570", WHITE)  \
	X(8, "#c3cad2", DARK)   \
	X(9, "#7a4fa3", WHITE)  \
	X(10, "#b5d99c", DARK)  \
	X(11, "#8a6d3b", WHITE) \
	X(12, "#2f4b8f", WHITE) \
	X(13, "#f6b5ad", DARK)  \
	X(14, "#a8322d", WHITE) \
	X(15, "#79d6cf", DARK)  \
	X(16, "#93a8ba", DARK)  \
	X(17, "#c3a0dd", DARK)  \
	X(18, "#a9c7e8", DARK)  \
	X(19, "#1d6b52", WHITE) \
	X(20, "#5a2a6b", WHITE) \
	X(21, "#e8dff0", DARK)  \
	X(22, "#d9cfa3", DARK)  \
	X(23, "#efe9d2", DARK)  \
	X(24, "#a39a6a", DARK)  \
	X(25, "#6b6435", WHITE) \
	X(26, "#b3a33c", DARK)  \
	X(27, "#8fbf3f", DARK)  \
	X(28, "#4f7a00", WHITE)
#define CSS(i, colour, label) ".p" #i "{--f:" colour label "}"
#define PARTS FO_EACH_PART(CSS)
#define ROW(i, colour, label) [i] = { colour, sizeof(label) > 1 },
const struct fo_draw_colour fo_draw_part[FO_DRAW_PARTS] = { FO_EACH_PART(ROW) };

/* Ground, ink, softer text, the grid and what lies below marks, light and dark. */
#define LIGHT "--ground:#fff;--panel:#f5f7f9;--ink:#1b1f24;--soft:#55606b;--grid:#e1e5e9;"
#define NIGHT "--ground:#14181d;--panel:#1c2229;--ink:#e8ebef;--soft:#a9b3be;--grid:#2c343d;"

const char fo_draw_style[] =
	":root{color-scheme:light dark;" LIGHT
	"--edge:#8a949e;--bad:#b04600;--s0:#0072b2;--s1:#d55e00;--s2:#008a63;--s3:#a03f80;"
	"--s4:#8a6d00;--s5:#3d4650}@media (prefers-color-scheme:dark){"
	":root{" NIGHT "--edge:#77828d;"
	"--bad:#ff9a4d;--s0:#56b4e9;--s1:#ff9a4d;--s2:#3ecf9f;--s3:#e79ac8;--s4:#e8cf4a;--s5:#c3cad2}}"
	"*{box-sizing:border-box}"
	"body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,sans-serif;"
	"overflow-wrap:break-word}main{max-width:1120px;margin:0 auto;padding:24px 28px 48px}"
	"h1{font-size:28px;line-height:1.25;margin:0 0 4px}h2{font-size:21px;margin:40px 0 8px}"
	"p{margin:8px 0;max-width:100ch}.k{white-space:nowrap}pre .k{white-space:pre}"
	".lead{color:var(--soft);font-size:17px}"
	".remark,footer{color:var(--soft);font-size:14px}"
	".warning{border-left:4px solid var(--bad);background:var(--panel);padding:8px 12px;max-width:none}"
	".verdict{border-left:4px solid var(--s0);background:var(--panel);border-radius:4px;padding:6px 14px;"
	"margin:16px 0}.verdict.bad{border-left-color:var(--bad)}.verdict.good{border-left-color:var(--s2)}"
	".verdict div{display:flex;gap:0 14px;padding:4px 0}"
	".verdict dt{flex:0 0 110px;color:var(--soft);font-size:14px;line-height:24px}"
	".verdict dd{margin:0;min-width:0}"
	".verdict div:first-child dd{font-weight:600;font-size:17px}ul{padding-left:22px;max-width:100ch}"
	"footer{margin-top:48px;border-top:1px solid var(--grid);padding-top:8px}"
	"pre{background:var(--panel);border:1px solid var(--grid);border-radius:4px;padding:10px 12px;"
	"margin:8px 0;font:13px/1.45 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;"
	"user-select:all}details{border:1px solid var(--grid);border-radius:4px;margin:8px 0;padding:0 12px}"
	"summary{cursor:pointer;padding:8px 0;font-weight:600}details[open]{padding-bottom:8px}\n"
	/* Words are smaller than numbers. */
	".facts{display:flex;flex-wrap:wrap;gap:12px;margin:16px 0}.facts.c3 div{flex-basis:30%}"
	".facts.c4 div{flex-basis:22%}.facts.c5 div{flex-basis:17%}"
	".facts div{flex:1 1 150px;min-width:0;overflow-wrap:anywhere;background:var(--panel);"
	"border-radius:6px;padding:10px 14px}.facts dt{color:var(--soft);font-size:14px}.facts dd{margin:0}"
	".facts .v{font-size:24px;font-weight:600;line-height:1.3}.facts .v.w{font-size:17px;line-height:1.35}"
	".facts .n{color:var(--soft);font-size:13px;line-height:1.4}"
	"table{border-collapse:collapse;margin:12px 0;font-size:15px;font-variant-numeric:tabular-nums}"
	"caption{text-align:left;color:var(--soft);font-size:14px;padding-bottom:4px}table.full{width:100%}"
	"td{overflow-wrap:anywhere}"
	"th,td{text-align:left;vertical-align:top;padding:5px 18px 5px 0;border-bottom:1px solid var(--grid)}"
	"th{font-weight:600;border-color:var(--edge)}.r{text-align:right}td.r{white-space:nowrap}"
	"th:last-child,td:last-child{padding-right:0}figure{margin:20px 0 28px}"
	"figcaption{font-weight:600;margin-bottom:4px}"
	".legend{display:flex;flex-wrap:wrap;gap:2px 20px;list-style:none;margin:2px 0 6px;padding:0;"
	"font-size:14px}.legend li{display:flex}.legend svg{flex:none;width:34px;height:14px;margin:4px 6px 0 0}"
	".none{color:var(--soft);border:1px dashed var(--edge);padding:20px;font-size:14px}\n"
	/* A plot: labels of y, the marks, labels of x. */
	".plot{display:grid;grid-template-columns:auto minmax(0,1fr);padding-right:20px;font-size:13px;"
	"color:var(--soft);font-variant-numeric:tabular-nums}.yn{grid-column:1/3;margin-bottom:8px}"
	".xn{grid-column:2;text-align:right}.ys{position:relative;margin-right:8px}"
	".ys i{visibility:hidden;font-style:normal;white-space:nowrap}"
	".ys span{position:absolute;right:0;line-height:1;transform:translateY(-50%);white-space:nowrap}"
	".area{position:relative;height:280px}"
	".area svg,.track svg{position:absolute;inset:0;width:100%;height:100%}.area svg{overflow:visible}"
	".xs{grid-column:2;position:relative;height:22px}"
	".xs span{position:absolute;top:4px;line-height:1.2;transform:translateX(-50%);white-space:nowrap}\n"
	/* Marks. Non-scaling strokes: the picture is stretched. */
	"svg *{vector-effect:non-scaling-stroke}.g{stroke:var(--grid);stroke-width:1;fill:none}"
	".z{stroke:var(--edge);stroke-width:1;fill:none}"
	".l{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
	".l.faint{stroke-width:1;opacity:.6}.d{fill:none;stroke:var(--c);stroke-width:7;stroke-linecap:round}"
	".pt{fill:var(--c);stroke:var(--c);stroke-width:1.2}.pt.open{fill:none}"
	".ring{fill:none;stroke:var(--ink);stroke-width:1.5}"
	".s0{--c:var(--s0)}.s1{--c:var(--s1)}.s2{--c:var(--s2)}.s3{--c:var(--s3)}.s4{--c:var(--s4)}"
	".s5{--c:var(--s5)}.l.s1{stroke-dasharray:9 5}.l.s2{stroke-dasharray:2 5}.l.s3{stroke-dasharray:12 4 2 4}"
	".l.s4{stroke-dasharray:5 5}.l.s5{stroke-dasharray:16 5}.l.faint{stroke-dasharray:none}"
	".b0{fill:var(--s1);fill-opacity:.2;stroke:var(--s1);stroke-width:1;stroke-opacity:.5}"
	".b1{fill:none;stroke:var(--edge);stroke-width:1;stroke-dasharray:3 3}"
	".b2{fill:var(--s3);fill-opacity:.2;stroke:var(--s3);stroke-width:1.5}"
	".b3{fill:var(--s0);fill-opacity:.14;stroke:none}"
	".vb{fill:var(--s2);fill-opacity:.13;stroke:var(--s2);stroke-width:1;stroke-opacity:.5}"
	".vl{fill:none;stroke:var(--s2);stroke-width:2;stroke-dasharray:7 4}\n"
	/* A waterfall: what falls, what comes back, and the level between two rows. */
	".fall{fill:var(--s1)}.back{fill:var(--s2)}"
	".y{stroke:var(--edge);stroke-width:1;stroke-dasharray:3 3;fill:none}\n"
	/* Lanes: text is HTML over stretched marks. */
	".lanes{position:relative;margin:0 8px;padding-top:20px;font-size:13px}.lanes.axis{padding:0}"
	".lanes .over{position:absolute;inset:0;pointer-events:none}"
	".lanes .over svg{position:absolute;inset:0;width:100%;height:100%}"
	".lanes .mn{position:absolute;top:0;line-height:18px;font-weight:600;color:var(--bad);white-space:nowrap}"
	".lanes .ln{color:var(--soft);line-height:18px;margin-top:6px}"
	".lane{position:relative;background:var(--panel)}"
	".lane svg{position:absolute;inset:0;width:100%;height:100%}"
	".lane b{position:absolute;line-height:20px;height:20px;font-size:12px;font-weight:500;padding:0 3px;"
	"color:var(--t,#101418);white-space:nowrap;overflow:hidden;text-overflow:ellipsis;pointer-events:none}"
	".lane b.narrow{display:none}.lanes .xs{position:relative;height:24px}.lanes .xs span{color:var(--soft)}"
	".gap{fill:var(--s1);fill-opacity:.16;stroke:var(--s1);stroke-width:1}"
	".arrow{stroke:var(--ink);stroke-width:1.5;fill:none}\n"
	/* Cards. */
	".card{border:1px solid var(--grid);border-left:4px solid var(--s0);border-radius:4px;"
	"padding:10px 16px;margin:14px 0}.card.serious{border-left-color:var(--bad)}"
	".card h3{font-size:17px;line-height:1.35;margin:0 0 4px}"
	".card .tag{color:var(--soft);font-size:13px;margin:0}.card table{margin:8px 0}"
	".card .facts{margin:10px 0}\n"
	/* Bars. */
	".bars{font-size:14px;font-variant-numeric:tabular-nums}"
	".row{display:grid;grid-template-columns:220px minmax(0,1fr) 200px;gap:0 14px;align-items:center;"
	"padding:5px 0}.row small{display:block;color:var(--soft);font-size:13px;line-height:1.35}"
	".row .v{line-height:1.35}.track{position:relative;height:26px}.track.two{height:36px}"
	".row .xs{grid-column:2;color:var(--soft);font-size:13px;margin-right:0}.bar{fill:var(--s0)}"
	".bar.bad{fill:var(--s1)}"
	".bar.doubt{fill:var(--s0);fill-opacity:.35;stroke:var(--s0);stroke-width:1.5;stroke-dasharray:4 3}"
	".hollow{fill:var(--ground);stroke:var(--s5);stroke-width:1.5}"
	".w{stroke:var(--ink);stroke-width:1.8;fill:none}.wh{stroke:var(--ground);stroke-width:5.4;fill:none}\n"
	/* Parts. */
	PARTS ".part{fill:var(--f);stroke:var(--ground);stroke-width:1}.part.fine{stroke:none}"
	".layer{fill:var(--f);stroke:var(--ground);stroke-width:.6}"
	".stack{position:relative;height:38px;margin-bottom:2px}"
	".stack svg{position:absolute;inset:0;width:100%;height:100%}"
	".stack b{position:absolute;top:0;line-height:38px;transform:translateX(-50%);font-size:13px;"
	"font-weight:500;color:var(--t,#101418);white-space:nowrap}"
	".sn{font-size:14px;margin-top:10px;display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 12px}"
	".sn span{color:var(--soft)}"
	".dense{display:grid;grid-template-columns:110px minmax(0,1fr) 90px;gap:0 12px;align-items:center;"
	"font-size:13px;line-height:20px;font-variant-numeric:tabular-nums}.dense .stack{height:16px;margin:0}"
	".dense .v{color:var(--soft);text-align:right}"
	"@media (max-width:900px){.facts.c5 div{flex-basis:30%}}"
	"td .sw,th .sw{display:inline-block;width:14px;height:14px;margin:0 8px 0 0;vertical-align:-2px}"
	".legend .sw{width:14px;margin-right:8px}@media (max-width:640px){main{padding:16px 16px 32px}"
	"h1{font-size:24px}h2{font-size:19px;margin-top:32px}.wide{display:none}.lane b.wide{display:none}"
	".lane b.narrow{display:block}.card{padding:8px 12px}"
	".dense{grid-template-columns:64px minmax(0,1fr) 66px;gap:0 8px}.facts{gap:8px}"
	".facts[class] div{flex:1 1 40%;padding:8px 10px}.facts .v{font-size:20px}"
	".facts .v.w{font-size:15px}.verdict div{display:block}.verdict dt{line-height:1.4}"
	".slim th,.slim td{padding-right:8px;font-size:13px}"
	".slim th:last-child,.slim td:last-child{padding-right:0}.area{height:230px}.plot{padding-right:14px}"
	".area .pt,.area .ring{transform:scale(.7)}"
	".row{display:flex;flex-wrap:wrap;justify-content:space-between}.row .n,.row .v{max-width:100%}"
	".row .track,.row .xs{order:3;flex:0 0 calc(100% - 44px);margin:0 22px}"
	".list,.list caption,.list tbody,.list tr,.list td{display:block}.list thead{display:none}"
	".list tr{border-bottom:1px solid var(--edge);padding:6px 0}"
	".list td{border:0;padding:2px 0;text-align:right;display:flex;justify-content:space-between;gap:16px}"
	".list td::before{content:attr(data-l);color:var(--soft);text-align:left;flex:none;max-width:50%}"
	".list td:first-child{font-weight:600;text-align:left}.list td:first-child::before{content:none}"
	".list td:empty{display:none}}@media print{"
	":root{--ground:#fff;--panel:#fff;--ink:#000;--soft:#444;--grid:#ccc;--edge:#666}"
	"main{max-width:none;padding:0}figure,tr,.facts div,pre{break-inside:avoid}h2{break-after:avoid}"
	"svg *{print-color-adjust:exact}"
	"details::details-content{content-visibility:visible;display:block;block-size:auto}}\n";

/* A file of its own: viewers that know no variables find each colour before its variable. */
const char fo_draw_file_style[] =
	"<style>\n:root{" LIGHT "}\n@media (prefers-color-scheme:dark){:root{" NIGHT "}}\n"
	"text{font:15px system-ui,sans-serif;fill:#1b1f24;fill:var(--ink)}.ground{fill:#fff;fill:var(--ground)}\n"
	".title{font-size:21px;font-weight:600}.soft{fill:#55606b;fill:var(--soft)}.end{text-anchor:end}"
	".mid{text-anchor:middle}.grid{stroke:#e1e5e9;stroke:var(--grid)}\n"
	".lane{fill:#f5f7f9;fill:var(--panel)}.s{stroke:#fff;stroke:var(--ground)}\n"
	".l{font-size:12px;text-anchor:middle;fill:#101418}.on{fill:#fff}.narrow{display:none}\n";

void fo_draw_swatch(struct fo_str *out, size_t part)
{
	fo_str_printf(
		out,
		"<svg class=\"sw\" viewBox=\"0 0 14 14\" aria-hidden=\"true\"><rect class=\"part p%zu\" width=\"14\" "
		"height=\"14\"/></svg>",
		part);
}
