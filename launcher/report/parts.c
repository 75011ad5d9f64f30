#include "launcher/report/parts.h"

#include "base/step_parts.h"
#include "launcher/report/page.h"

#include <string.h>

/* clang-format off */
const struct report_part report_parts[REPORT_PARTS] = {
	{ "compute",    "compute" },
	{ "recompute",  "recomputation" },
	{ "optimizer",  "optimizer" },
	{ "tp",         "tensor parallel" },
	{ "cp",         "context parallel" },
	{ "ep",         "expert parallel" },
	{ "dp",         "data parallel" },
	{ "pp",         "pipeline" },
	{ "slowest",    "waiting for slower ranks" },
	{ "data",       "waiting for data" },
	{ "evaluation", "evaluation" },
	{ "checkpoint", "checkpoints" },
	{ "other",      "other" },
	{ "start",      "start" },
	{ "restart",    "restarts" },
	{ "lost",       "lost steps" },
	{ "stop",       "stop" },
	{ "idle",       "idle devices" },
	{ "unreported", "not reported" },
};
/* clang-format on */

int report_part_index(const char *key)
{
	size_t n = strlen(key);
	if (n > 2 && !strcmp(key + n - 2, "_s"))
		n -= 2;
	for (int i = 0; i < REPORT_PARTS; i++)
		if (strlen(report_parts[i].key) == n && !memcmp(report_parts[i].key, key, n))
			return i;
	return -1;
}

void report_part_key(struct buf *out, int part)
{
	buf_printf(out, "<i class=\"key square p-%s\"></i>", report_parts[part].key);
}

void report_part_bar(struct buf *out, const char *label, const double values[REPORT_PARTS])
{
	double sum = 0, at = 0;
	char word[REPORT_WORD];
	for (int i = 0; i < REPORT_PARTS; i++)
		sum += values[i] > 0 ? values[i] : 0;
	if (!(sum > 0))
		return;
	buf_puts(out, "<svg class=\"bar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" "
		      "role=\"img\" aria-label=\"");
	report_text(out, label);
	for (int i = 0; i < REPORT_PARTS; i++)
		if (values[i] >= sum * 0.0005)
			buf_printf(out, ", %s %s", report_parts[i].name,
				   report_percent(values[i] / sum, word));
	buf_puts(out, "\">");
	for (int i = 0; i < REPORT_PARTS; i++) {
		if (!(values[i] > 0))
			continue;
		double wide = 1000 * values[i] / sum;
		buf_printf(out, "<rect class=\"p-%s\" x=\"%.2f\" width=\"%.2f\" height=\"10\"/>",
			   report_parts[i].key, at, wide);
		at += wide;
	}
	buf_puts(out, "</svg>\n");
}
