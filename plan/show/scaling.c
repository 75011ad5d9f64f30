/* Shows how a job scales over a cluster's sizes: as text, JSON, a picture. */
#include "plan/show/search.h"

#include "base/human.h"
#include "plan/show/draw_timeline.h"
#include "plan/show/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 1200, HEIGHT = 720, LEFT = 130, RIGHT = 60, TOP = 90, BOTTOM = 90, DOT = 6 };
/* Marks of the axis of rates. */
enum { RATES_LEAST = 4, RATES_MAX = 32 };

static double rate_of(const struct job *job, const struct scaling_point *p)
{
	return p->fits ? (double)job->batch.global * (double)job->model.seq / p->best.time.total
		       : 0;
}

/* The first size that fits; n: none does. */
static int first_fit(const struct scaling_point *points, int n)
{
	int first = 0;
	while (first < n && !points[first].fits)
		first++;
	return first;
}

/* The rate per device, relative to that of the first size that fits. */
static double efficiency_of(const struct job *job, const struct scaling_point *points, int n,
			    int at)
{
	int first = first_fit(points, n);
	if (first == n || !points[at].fits)
		return 0;
	return rate_of(job, &points[at]) / points[at].devices /
	       (rate_of(job, &points[first]) / points[first].devices);
}

void show_scaling_print(const struct job *job, const char *cluster,
			const struct scaling_point *points, int n, struct buf *out)
{
	buf_printf(out, "Scaling of %s on %s: %lld sequences per step at every size\n\n",
		   job->job.name, cluster, (long long)job->batch.global);
	show_program_print(job, out);
	buf_puts(out, "  devices       step   tokens/s  efficiency  of the rate  layout\n");
	struct model_shape m;
	shape_of_job(job, &m);
	for (int i = 0; i < n; i++) {
		const struct scaling_point *p = &points[i];
		char time[HUMAN], rate[HUMAN];
		if (!p->fits) {
			buf_printf(out, "  %7d  nothing fits\n", p->devices);
			continue;
		}
		double tokens = rate_of(job, p),
		       share = p->flops > 0 ? tokens * shape_flops_token(&m) / p->devices / p->flops
					    : 0;
		buf_printf(out, "  %7d  %9s  %9s  %8.0f %%  %9.0f %%  ", p->devices,
			   human_seconds(p->best.time.total, time), human_count(tokens, "", rate),
			   100 * efficiency_of(job, points, n, i), 100 * share);
		search_config_print(&p->best.leaf.config, out);
		buf_puts(out, "\n");
	}
	int first = first_fit(points, n);
	if (first < n && *points[first].best.warning)
		buf_printf(out, "\nWarning, at %d devices: %s\n", points[first].devices,
			   points[first].best.warning);
	buf_puts(out, "\n  efficiency: tokens/s per device over those of the first size that fits; "
		      "of the rate: FLOPs over the devices' data sheet\n");
}

json_t *show_scaling_json(const struct job *job, const char *cluster,
			  const struct scaling_point *points, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++) {
		const struct scaling_point *p = &points[i];
		if (p->fits)
			json_array_append_new(
				list,
				json_pack("{s:i, s:b, s:f, s:f, s:f, s:f, s:o}", "devices",
					  p->devices, "fits", 1, "seconds", p->best.time.total,
					  "tokens_per_second", rate_of(job, p), "efficiency",
					  efficiency_of(job, points, n, i), "bytes", p->best.memory,
					  "layout", show_search_json_config(&p->best.leaf.config)));
		else
			json_array_append_new(list, json_pack("{s:i, s:b}", "devices", p->devices,
							      "fits", 0));
	}
	return json_pack("{s:i, s:s, s:s, s:s, s:I, s:o}", "version", 1, "name", job->job.name,
			 "engine", show_program_word(job), "cluster", cluster, "batch_global",
			 (json_int_t)job->batch.global, "points", list);
}

/* --- The picture --- */

/* Both axes are logarithmic. Each size of the cluster has a mark, and round rates have one. */
struct chart {
	double x0, x1, y0, y1; /* log2 of devices and of tokens per second at the frame's edges */
};

static double at_x(const struct chart *c, double devices)
{
	return LEFT + (log2(devices) - c->x0) / (c->x1 - c->x0) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct chart *c, double rate)
{
	return HEIGHT - BOTTOM - (log2(rate) - c->y0) / (c->y1 - c->y0) * (HEIGHT - TOP - BOTTOM);
}

/* "200 k" and "1.5 M", without "200.0 k". */
static const char *mark_word(double rate, char out[HUMAN])
{
	human_count(rate, "", out);
	char *zero = strstr(out, ".0");
	if (zero)
		memmove(zero, zero + 2, strlen(zero + 2) + 1);
	return out;
}

/* The round numbers between the chart's edges: the coarsest steps per decade that give at least
 * RATES_LEAST marks. Returns their number, at most RATES_MAX. */
static int round_rates(const struct chart *c, double out[RATES_MAX])
{
	static const double steps[][11] = {
		{ 1 },
		{ 1, 2, 5 },
		{ 1, 1.5, 2, 3, 4, 5, 7 },
		{ 1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 6, 8 },
	};
	int n = 0;
	for (size_t s = 0; s < sizeof steps / sizeof *steps && n < RATES_LEAST; s++) {
		n = 0;
		for (double ten = floor(c->y0 * log10(2)); ten <= c->y1 * log10(2); ten++)
			for (int i = 0; i < 11 && steps[s][i] > 0; i++) {
				double rate = steps[s][i] * pow(10, ten);
				if (n < RATES_MAX && log2(rate) >= c->y0 && log2(rate) <= c->y1)
					out[n++] = rate;
			}
	}
	return n;
}

static void put_grid(const struct chart *c, const struct scaling_point *points, int n,
		     struct buf *out)
{
	for (int i = 0; i < n; i++) {
		double x = at_x(c, points[i].devices);
		buf_printf(out,
			   "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" "
			   "class=\"grid\"/>\n<text x=\"%.1f\" y=\"%d\" class=\"tick\">%d</text>\n",
			   x, TOP, x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 28, points[i].devices);
	}
	double marks[RATES_MAX];
	int rates = round_rates(c, marks);
	for (int i = 0; i < rates; i++) {
		char rate[HUMAN];
		double at = at_y(c, marks[i]);
		buf_printf(out,
			   "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" "
			   "class=\"grid\"/>\n<text x=\"%d\" y=\"%.1f\" class=\"side\">%s</text>\n",
			   LEFT, at, WIDTH - RIGHT, at, LEFT - 12, at + 6,
			   mark_word(marks[i], rate));
	}
}

static void put_points(const struct job *job, const struct chart *c,
		       const struct scaling_point *points, int n, struct buf *out)
{
	buf_puts(out, "<polyline class=\"line\" points=\"");
	for (int i = 0; i < n; i++)
		if (points[i].fits)
			buf_printf(out, "%.1f,%.1f ", at_x(c, points[i].devices),
				   at_y(c, rate_of(job, &points[i])));
	buf_puts(out, "\"/>\n");
	for (int i = 0; i < n; i++) {
		const struct scaling_point *p = &points[i];
		if (!p->fits)
			continue;
		double x = at_x(c, p->devices), y = at_y(c, rate_of(job, p));
		buf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" class=\"dot\"><title>", x,
			   y, DOT);
		search_config_print(&p->best.leaf.config, out);
		buf_printf(out,
			   "</title></circle>\n<text x=\"%.1f\" y=\"%.1f\" class=\"share\">%.0f "
			   "%%</text>\n",
			   x + 10, y + 22, 100 * efficiency_of(job, points, n, i));
	}
}

void show_scaling_svg(const struct job *job, const char *cluster,
		      const struct scaling_point *points, int n, struct buf *out)
{
	int first = first_fit(points, n), last = n - 1;
	buf_printf(out,
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
		   "font-family=\"sans-serif\">\n"
		   "<style>.grid{stroke:#ddd}.tick{font-size:18px;text-anchor:middle;fill:#444}."
		   "side{font-size:18px;text-anchor:end;fill:#444}"
		   ".line{fill:none;stroke:#1f5fa8;stroke-width:3}.ideal{stroke:#999;stroke-width:"
		   "2;stroke-dasharray:8 6}.dot{fill:#1f5fa8}"
		   ".share{font-size:16px;fill:#1f5fa8}.title{font-size:26px;fill:#222}</"
		   "style>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
		   "<text x=\"%d\" y=\"48\" class=\"title\">",
		   WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
	show_svg_escape(out, job->job.name);
	buf_puts(out, " on ");
	show_svg_escape(out, cluster);
	if (show_program_name(job))
		buf_printf(out, " by %s", show_program_name(job));
	buf_puts(out, first < n ? ": tokens per second over devices" : ": nothing fits");
	buf_puts(out, "</text>\n");
	if (first < n) {
		double base = rate_of(job, &points[first]),
		       ideal = base / points[first].devices * points[last].devices;
		double low = base, high = ideal;
		for (int i = first; i < n; i++) {
			low = points[i].fits ? fmin(low, rate_of(job, &points[i])) : low;
			high = points[i].fits ? fmax(high, rate_of(job, &points[i])) : high;
		}
		struct chart c = { log2(points[0].devices) - 0.25,
				   log2(points[last].devices) + 0.25, log2(low) - 0.5,
				   log2(high) + 0.5 };
		put_grid(&c, points, n, out);
		buf_printf(
			out,
			"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"ideal\"/>\n",
			at_x(&c, points[first].devices), at_y(&c, base),
			at_x(&c, points[last].devices), at_y(&c, ideal));
		put_points(job, &c, points, n, out);
	}
	buf_puts(out, "</svg>\n");
}
