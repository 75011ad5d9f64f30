#include "launcher/report/parts.h"

#include "launcher/report/page.h"

static const char *const keys[TIME_PART_COUNT] = {
#define PART_KEY(with, ENUM, member, name, transfers, doc) #member,
	TIME_PARTS(PART_KEY, )
#undef PART_KEY
};

const enum time_part report_parts[TIME_PART_COUNT] = {
	TIME_COMPUTE,    TIME_RECOMPUTE,  TIME_OPTIMIZER, TIME_TP,         TIME_CP,
	TIME_EP,         TIME_DP,         TIME_PP,        TIME_SLOWEST,    TIME_DATA,
	TIME_EVALUATION, TIME_CHECKPOINT, TIME_OTHER,     TIME_START,      TIME_RESTART,
	TIME_LOST,       TIME_STOP,       TIME_IDLE,      TIME_UNREPORTED,
};

const char *report_part_word(enum time_part part)
{
	return keys[part];
}

void report_part_key(struct buf *out, enum time_part part)
{
	buf_printf(out, "<i class=\"key square p-%s\"></i>", keys[part]);
}

void report_part_bar(struct buf *out, const char *label, const double values[TIME_PART_COUNT])
{
	double sum = 0, at = 0;
	char word[REPORT_WORD];
	for (int i = 0; i < TIME_PART_COUNT; i++)
		sum += values[i] > 0 ? values[i] : 0;
	if (!(sum > 0))
		return;
	buf_puts(out, "<svg class=\"bar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" "
		      "role=\"img\" aria-label=\"");
	report_text(out, label);
	for (int i = 0; i < TIME_PART_COUNT; i++)
		if (values[report_parts[i]] >= sum * 0.0005)
			buf_printf(out, ", %s %s", time_part_name(report_parts[i]),
				   report_percent(values[report_parts[i]] / sum, word));
	buf_puts(out, "\">");
	for (int i = 0; i < TIME_PART_COUNT; i++) {
		enum time_part part = report_parts[i];
		double wide = 1000 * values[part] / sum;
		if (!(wide > 0))
			continue;
		buf_printf(out, "<rect class=\"p-%s\" x=\"%.2f\" width=\"%.2f\" height=\"10\"/>",
			   keys[part], at, wide);
		at += wide;
	}
	buf_puts(out, "</svg>\n");
}
