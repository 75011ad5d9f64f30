/* contract: what the plan predicted, beside what was measured: the time of a step and memory. */
#include "launcher/report/page.h"
#include "launcher/report/sections.h"
#include "launcher/rundir/likely.h"

#include <math.h>
#include <string.h>

static double number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Two bars to the same scale: predicted above measured. */
static void put_bars(struct buf *out, double predicted, double measured, double most)
{
	const double wide = most > 0 ? 1000 / most : 0;
	buf_printf(out,
		   "<svg class=\"pair\" viewBox=\"0 0 1000 16\" preserveAspectRatio=\"none\" "
		   "aria-hidden=\"true\"><rect class=\"c1\" width=\"%.1f\" height=\"7\"/><rect "
		   "class=\"c0\" y=\"9\" width=\"%.1f\" height=\"7\"/></svg>",
		   predicted > 0 ? fmin(predicted * wide, 1000) : 0,
		   measured > 0 ? fmin(measured * wide, 1000) : 0);
}

static void put_ratio(struct buf *out, double predicted, double measured)
{
	if (predicted > 0 && measured > 0)
		buf_printf(out, "%.2f×", measured / predicted);
	else
		buf_puts(out, "–");
}

static void put_row(struct buf *out, const char *name, int part, double predicted, double measured,
		    double most, const char *(*format)(double v, char out[REPORT_WORD]))
{
	char word[REPORT_WORD];
	buf_puts(out, "<tr><th scope=\"row\">");
	if (part >= 0)
		report_part_key(out, (enum time_part)part);
	buf_printf(out, "%s</th><td class=\"n\">%s</td><td class=\"n\">", name,
		   format(predicted, word));
	report_data(out, "measured", measured, format(measured, word));
	buf_puts(out, "</td><td class=\"n\">");
	put_ratio(out, predicted, measured);
	buf_puts(out, "</td><td class=\"pairs\">");
	put_bars(out, predicted, measured, most);
	buf_puts(out, "</td></tr>\n");
}

static void open_table(struct buf *out, const char *first)
{
	buf_printf(out,
		   "<div class=\"wide\"><table class=\"contract times\"><thead><tr><th>%s</th><th "
		   "class=\"n\"><i class=\"key square c1\"></i>Predicted</th><th class=\"n\"><i "
		   "class=\"key square c0\"></i>Measured</th><th class=\"n\">Ratio</th><th "
		   "class=\"pairs\"></th></tr>"
		   "</thead><tbody>\n",
		   first);
}

static void put_times(struct buf *out, const struct report_run *r)
{
	const json_t *predicted = json_object_get(r->history.contract, "predicted"),
		     *measured = json_object_get(r->history.contract, "measured");
	char count[REPORT_WORD], likely[RUNDIR_LIKELY];
	double most = fmax(number(predicted, "step_s"), number(measured, "step_s"));
	buf_printf(out, "<h3>Time of a step</h3><p class=\"note\">Means over %s measured steps.",
		   report_count(json_integer_value(json_object_get(r->history.contract, "steps")),
				count));
	rundir_likely_print(number(measured, "step_s"), number(r->history.contract, "least_s"),
			    number(r->history.contract, "most_s"), likely);
	buf_printf(out, "%s%s%s</p>\n", *likely ? " The step is " : "", likely, *likely ? "." : "");
	open_table(out, "Part");
	put_row(out, "step", -1, number(predicted, "step_s"), number(measured, "step_s"), most,
		report_seconds);
	for (int i = 0; i < TIME_PART_COUNT; i++) {
		int part = (int)report_parts[i] - TIME_STEP;
		if (part < 0 || part >= STEP_PART_COUNT)
			continue;
		const char *key = rundir_column_key((enum rundir_column)(COLUMN_PARTS + part));
		double was = number(measured, key), plan = number(predicted, key);
		if (was > 0 || plan > 0)
			put_row(out, time_part_name(report_parts[i]), (int)report_parts[i], plan,
				was, most, report_seconds);
	}
	buf_puts(out, "</tbody></table></div>\n");
}

/* --- Memory ----------------------------------------------------------------------------- */

static void put_measured_memory(struct buf *out, const struct report_run *r)
{
	const json_t *memory = json_object_get(r->history.contract, "memory");
	char a[REPORT_WORD], b[REPORT_WORD];
	double least, peak = NAN;
	const struct rundir_columns *c = &r->history.steps;
	for (size_t i = 0; i < c->n; i++)
		peak = fmax(peak, c->of[COLUMN_PEAK_BYTES][i]);
	least = number(r->plan, "device_bytes");
	buf_puts(out, "<p class=\"note\">");
	if (peak > 0)
		buf_printf(out, "The rank that reports the loss used at most %s. ",
			   report_bytes(peak, a));
	if (least > 0)
		buf_printf(out, "A rank may use %s. ", report_bytes(least, a));
	if (json_is_object(memory))
		buf_printf(out,
			   "Rank %lld differs most from its prediction: %s predicted, %s measured.",
			   (long long)json_integer_value(json_object_get(memory, "rank")),
			   report_bytes(number(memory, "predicted_bytes"), a),
			   report_bytes(number(memory, "measured_bytes"), b));
	buf_puts(out, "</p>\n");
}

static const char *const kinds[] = { "parameters",  "gradients", "optimizer",
				     "activations", "buffers",   "snapshot" };
enum { KINDS = sizeof kinds / sizeof *kinds };

static void put_stage(struct buf *out, size_t stage, const json_t *bytes, double most)
{
	char word[REPORT_WORD];
	double at = 0;
	buf_printf(out,
		   "<tr><th scope=\"row\">%zu</th><td class=\"n\">%s</td><td class=\"pairs\">"
		   "<svg class=\"pair\" viewBox=\"0 0 1000 16\" preserveAspectRatio=\"none\" "
		   "role=\"img\" aria-label=\"",
		   stage, report_bytes(number(bytes, "total"), word));
	for (int i = 0; i < KINDS; i++)
		buf_printf(out, "%s%s %s", i ? ", " : "", kinds[i],
			   report_bytes(number(bytes, kinds[i]), word));
	buf_puts(out, "\">");
	for (int i = 0; i < KINDS; i++) {
		double wide = most > 0 ? 1000 * number(bytes, kinds[i]) / most : 0;
		if (!(wide > 0))
			continue;
		buf_printf(
			out,
			"<rect class=\"m%d\" x=\"%.1f\" width=\"%.1f\" height=\"16\"><title>%s: %s"
			"</title></rect>",
			i, at, wide, kinds[i], report_bytes(number(bytes, kinds[i]), word));
		at += wide;
	}
	buf_puts(out, "</svg></td></tr>\n");
}

static void put_memory(struct buf *out, const struct report_run *r)
{
	enum { STAGES = 256 };
	const json_t *stages = json_object_get(r->plan, "stages");
	size_t n = json_array_size(stages);
	double most = 0;
	buf_puts(out, "<h3>Memory</h3>\n");
	put_measured_memory(out, r);
	if (!n)
		return;
	n = n < STAGES ? n : STAGES;
	for (size_t i = 0; i < n; i++)
		most = fmax(most,
			    number(json_object_get(json_array_get(stages, i), "bytes"), "total"));
	buf_puts(out, "<ul class=\"legend\">");
	for (int i = 0; i < KINDS; i++)
		buf_printf(out, "<li><i class=\"key square m%d\"></i>%s</li>", i, kinds[i]);
	buf_puts(out, "</ul><table class=\"contract\"><thead><tr><th>Stage</th><th class=\"n\">"
		      "Predicted</th><th></th></tr></thead><tbody>\n");
	for (size_t i = 0; i < n; i++)
		put_stage(out, i, json_object_get(json_array_get(stages, i), "bytes"), most);
	buf_puts(out, "</tbody></table>\n");
}

void report_contract(struct buf *out, const struct report_run *r)
{
	if (!r->history.contract && (!r->plan || report_has_program(r)))
		return;
	report_section_open(out, r, "contract", "Contract: predicted and measured");
	if (r->history.contract)
		put_times(out, r);
	else
		buf_puts(out, "<p class=\"note\">The contract is written at the end of a run that "
			      "has measured steps.</p>\n");
	put_memory(out, r);
	report_section_close(out);
}
