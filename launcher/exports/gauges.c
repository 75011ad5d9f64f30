#include "launcher/exports/gauges.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum type { TYPE_GAUGE, TYPE_COUNTER };

static const char *const type_words[] = { [TYPE_GAUGE] = "gauge", [TYPE_COUNTER] = "counter" };

static const struct {
	enum type type;
	const char *name, *help;
} rows[] = {
#define ROW(id, type, name, help) [GAUGE_##id] = { TYPE_##type, name, help },
	EXPORT_GAUGES(ROW)
#undef ROW
};

/* By enum time_part; those of a step begin at TIME_STEP. */
static const char *const parts[] = {
#define PART(with, ENUM, member, ...) #member,
	TIME_PARTS(PART, )
#undef PART
};

/* --- Labels ---------------------------------------------------------------------------- */

/* Appends name="value", as far as there is room for the whole of it. */
static void add_label(char *labels, size_t size, const char *name, const char *value)
{
	size_t begin = strlen(labels), at = begin;
	int n = snprintf(labels + at, size - at, "%s%s=\"", *labels ? "," : "", name);
	at += n > 0 ? (size_t)n : 0;
	for (; *value && at + 4 < size; value++) {
		if (strchr("\\\"\n", *value))
			labels[at++] = '\\';
		labels[at++] = (char)(*value == '\n' ? 'n' : *value);
	}
	if (at + 2 > size || *value) {
		labels[begin] = '\0';
		return;
	}
	labels[at++] = '"';
	labels[at] = '\0';
}

void exports_gauges_init(struct export_gauges *g, const char *run, const char *host)
{
	memset(g, 0, sizeof *g);
	g->state = RUNDIR_STATE_STARTING;
	add_label(g->labels, sizeof g->labels, "run", run);
	add_label(g->labels, sizeof g->labels, "host", host);
}

void exports_gauges_info(struct export_gauges *g, const char *name, const char *value)
{
	add_label(g->info, sizeof g->info, name, value);
}

void exports_gauge_set(struct export_gauges *g, enum export_gauge id, double value)
{
	g->value[id] = value;
	g->known[id] = true;
}

void exports_gauge_add(struct export_gauges *g, enum export_gauge id, double value)
{
	exports_gauge_set(g, id, (g->known[id] ? g->value[id] : 0) + value);
}

/* --- Text ------------------------------------------------------------------------------ */

/* Both formats spell numbers that are not finite in this way. */
static void put_value(double value, struct buf *out)
{
	char text[40];
	if (isnan(value)) {
		buf_puts(out, "NaN\n");
	} else if (isinf(value)) {
		buf_puts(out, value > 0 ? "+Inf\n" : "-Inf\n");
	} else if (fabs(value) < 1e15 && value == floor(value)) {
		buf_printf(out, "%.0f\n", value);
	} else {
		snprintf(text, sizeof text, "%.15g", value);
		if (strtod(text, NULL) != value)
			snprintf(text, sizeof text, "%.17g", value);
		buf_printf(out, "%s\n", text);
	}
}

/* The HELP and TYPE lines of a family. */
static void put_head(enum export_format format, enum type type, const char *name, const char *help,
		     struct buf *out)
{
	size_t n = strlen(name);
	if (format == FORMAT_OPEN_METRICS && type == TYPE_COUNTER)
		n -= strlen("_total");
	buf_printf(out, "# HELP muster_%.*s %s\n# TYPE muster_%.*s %s\n", (int)n, name, help,
		   (int)n, name, type_words[type]);
}

/* more: further labels, such as `,rank="0"`. */
static void put_sample(const struct export_gauges *g, const char *name, const char *more,
		       double value, struct buf *out)
{
	buf_printf(out, "muster_%s{%s%s} ", name, g->labels, more);
	put_value(value, out);
}

static void put_info(const struct export_gauges *g, enum export_format format, struct buf *out)
{
	char more[sizeof g->info + 1];
	snprintf(more, sizeof more, "%s%s", *g->info ? "," : "", g->info);
	put_head(format, TYPE_GAUGE, "run_info", "What the run is; always 1.", out);
	put_sample(g, "run_info", more, 1, out);
}

static void put_state(const struct export_gauges *g, enum export_format format, struct buf *out)
{
	char more[64];
	put_head(format, TYPE_GAUGE, "state", "1 for the state that the run is in, otherwise 0.",
		 out);
	for (int i = 0; i < RUNDIR_STATE_COUNT; i++) {
		if (i == RUNDIR_STATE_QUEUED || i == RUNDIR_STATE_LOST)
			continue; /* without a supervisor */
		snprintf(more, sizeof more, ",state=\"%s\"",
			 rundir_state_word((enum rundir_state_id)i));
		put_sample(g, "state", more, i == (int)g->state, out);
	}
}

/* One sample for each of n parts, from seconds or from microseconds. */
static void put_each_part(const struct export_gauges *g, const char *name, int first, int n,
			  const double *seconds, const int64_t *us, struct buf *out)
{
	char more[64];
	for (int i = 0; i < n; i++) {
		snprintf(more, sizeof more, ",part=\"%s\"", parts[first + i]);
		put_sample(g, name, more, us ? (double)us[i] * 1e-6 : seconds[i], out);
	}
}

static void put_parts(const struct export_gauges *g, enum export_format format, struct buf *out)
{
	static const char of_steps[] = "step_time_seconds_total", of_run[] = "time_seconds";
	if (g->known[GAUGE_STEP]) {
		put_head(format, TYPE_COUNTER, of_steps,
			 "Time in steps by its part, of the rank that reports the loss.", out);
		put_each_part(g, of_steps, TIME_STEP, STEP_PART_COUNT, g->parts, NULL, out);
	}
	if (g->time) {
		put_head(format, TYPE_GAUGE, of_run,
			 "Time of all ranks and idle devices since the run began, by its part.",
			 out);
		put_each_part(g, of_run, 0, TIME_PART_COUNT, NULL, g->time, out);
	}
}

/* One series of every rank. A run has thousands of ranks, so what all lines share is made once. */
static void put_rank_series(const struct export_gauges *g, bool still, struct buf *out)
{
	static const struct {
		const char *name, *help;
	} series[] = {
		{ "rank_step", "Last finished step of the rank." },
		{ "rank_still_seconds", "Time since the rank made progress." },
	};
	char begin[sizeof g->labels + 64], line[sizeof begin + 400];
	struct export_rank k;
	put_head(FORMAT_PROMETHEUS, TYPE_GAUGE, series[still].name, series[still].help, out);
	int n = snprintf(begin, sizeof begin, "muster_%s{%s", series[still].name, g->labels);
	memcpy(line, begin, sizeof begin);
	for (int r = 0; g->rank(g->arg, r, &k); r++) {
		snprintf(line + n, sizeof line - (size_t)n, ",rank=\"%d\"", r);
		add_label(line, sizeof line, "node", k.node);
		size_t len = strlen(line);
		int rest = still ? snprintf(line + len, sizeof line - len, "} %.3f\n", k.still_s)
				 : snprintf(line + len, sizeof line - len, "} %" PRId64 "\n",
					    k.step);
		buf_add(out, line, len + (size_t)rest);
	}
}

void exports_gauges_ranks(const struct export_gauges *g, struct buf *out)
{
	struct export_rank k;
	if (!g->rank || !g->rank(g->arg, 0, &k))
		return;
	put_rank_series(g, false, out);
	put_rank_series(g, true, out);
}

void exports_gauges_text(const struct export_gauges *g, enum export_format format,
			 const struct buf *ranks, struct buf *out)
{
	put_info(g, format, out);
	put_state(g, format, out);
	for (int i = 0; i < GAUGE_COUNT; i++) {
		if (!g->known[i])
			continue;
		put_head(format, rows[i].type, rows[i].name, rows[i].help, out);
		put_sample(g, rows[i].name, "", g->value[i], out);
	}
	put_parts(g, format, out);
	if (ranks->len)
		buf_add(out, ranks->data, ranks->len);
	if (format == FORMAT_OPEN_METRICS)
		buf_puts(out, "# EOF\n");
}
