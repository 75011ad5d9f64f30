#include "plan/cost/calibration.h"

#include "topo/host.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIND "muster-calibration"

enum { VERSION = 2, CORES_MAX = 65536 };

/* --- The fit --- */

double calibration_predict(const struct calibration_link *link, int ranks, double bytes)
{
	return 2 * (ranks - 1) * (link->alpha + link->beta * bytes / ranks);
}

/* Minimizes the sum of ((a x + b y) - 1)². x and y are what one second of alpha and of beta adds,
 * divided by the measured time. */
bool calibration_fit(const struct calibration_sample *samples, int n, struct calibration_link *out)
{
	double xx = 0, xy = 0, yy = 0, x1 = 0, y1 = 0, error = 0;
	for (int i = 0; i < n; i++) {
		const struct calibration_sample *s = &samples[i];
		double steps = 2 * (s->ranks - 1), x = steps / s->seconds,
		       y = steps * s->bytes / s->ranks / s->seconds;
		xx += x * x;
		xy += x * y;
		yy += y * y;
		x1 += x;
		y1 += y;
	}
	double det = xx * yy - xy * xy;
	struct calibration_link link = { .known = true, .points = n };
	if (n < 2 || !(det > 0) || !isfinite(det))
		return false;
	link.alpha = (x1 * yy - y1 * xy) / det;
	link.beta = (y1 * xx - x1 * xy) / det;
	if (link.alpha < 0) {
		link.alpha = 0;
		link.beta = y1 / yy;
	} else if (link.beta < 0) {
		link.beta = 0;
		link.alpha = x1 / xx;
	}
	for (int i = 0; i < n; i++)
		error += fabs(calibration_predict(&link, samples[i].ranks, samples[i].bytes) /
				      samples[i].seconds -
			      1);
	link.error = error / n;
	*out = link;
	return true;
}

/* --- This machine --- */

static void cpu_model(char *out, size_t size)
{
	char line[512], name[128];
	FILE *f = fopen("/proc/cpuinfo", "re");
	snprintf(out, size, "unknown");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "model name : %127[^\n]", name) == 1) {
			snprintf(out, size, "%s", name);
			break;
		}
	if (f)
		fclose(f);
}

int calibration_here(struct calibration *c, struct err *e)
{
	const struct host *h;
	time_t now = time(NULL);
	struct tm utc;
	if (topo_host_get(&h, e))
		return -1;
	c->cores = c->measured.cores = h->n_cores;
	cpu_model(c->cpu, sizeof c->cpu);
	if (gethostname(c->host, sizeof c->host - 1))
		snprintf(c->host, sizeof c->host, "localhost");
	strftime(c->date, sizeof c->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	return 0;
}

int calibration_add_chip(struct calibration *c, const struct measured_chip *chip, struct err *e)
{
	int i = 0;
	while (i < c->n_chips && strcmp(c->chips[i].name, chip->name))
		i++;
	if (i == CALIBRATION_CHIPS)
		return err_set(
			e, ERR_NOMEM,
			"the calibration has %d other chips already; write %s to another file",
			CALIBRATION_CHIPS, chip->name);
	c->chips[i] = *chip;
	c->n_chips += i == c->n_chips;
	return 0;
}

/* --- The file --- */

static json_t *chips_json(const struct calibration *c)
{
	json_t *list = json_array();
	for (int i = 0; i < c->n_chips; i++)
		json_array_append_new(list, topo_measured_chip_json(&c->chips[i]));
	return list;
}

void calibration_write(const struct calibration *c, struct buf *out)
{
	json_t *links = json_array();
	for (int i = 0; i < CALIBRATION_TRANSPORTS; i++) {
		const struct calibration_link *l = &c->links[i];
		if (l->known)
			json_array_append_new(
				links,
				json_pack("{s:s, s:s, s:f, s:f, s:f, s:i}", "transport",
					  topo_measured_transport_word(i), "pattern", "all_reduce",
					  "alpha_s", l->alpha, "beta_s_per_byte", l->beta, "error",
					  l->error, "points", l->points));
	}
	json_t *all = json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:s, s:o}", "version", VERSION,
				"kind", KIND, "host", c->host, "cpu", c->cpu, "cores", c->cores,
				"ranks", c->ranks, "date", c->date, "links", links);
	if (all && c->flops > 0)
		json_object_set_new(all, "gemm", json_pack("{s:f}", "flops", c->flops));
	if (all && c->measured.n_machines)
		json_object_set_new(all, "machines", topo_measured_machines_json(&c->measured));
	if (all && c->measured.n_exchanges)
		json_object_set_new(all, "exchanges", topo_measured_exchanges_json(&c->measured));
	if (all && c->n_chips)
		json_object_set_new(all, "chips", chips_json(c));
	char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
	if (text) {
		buf_printf(out, "%s\n", text);
		free(text);
	} else {
		out->failed = true;
	}
	json_decref(all);
}

static int damaged(const char *name, const char *what, struct err *e)
{
	return err_set(e, ERR_USAGE, "%s: %s; write it again with muster bench calibrate", name,
		       what);
}

/* The text is shown to people, so control characters are refused. It must fit into `size`. */
static bool take_text(char *out, size_t size, const char *text)
{
	size_t n = strlen(text);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 127)
			return false;
	if (n >= size)
		return false;
	memcpy(out, text, n + 1);
	return true;
}

static int read_link(json_t *o, const char *name, struct calibration *c, struct err *e)
{
	const char *transport, *pattern;
	struct calibration_link l = { .known = true };
	if (json_unpack(o, "{s:s, s:s, s:F, s:F, s:F, s:i !}", "transport", &transport, "pattern",
			&pattern, "alpha_s", &l.alpha, "beta_s_per_byte", &l.beta, "error",
			&l.error, "points", &l.points))
		return damaged(name,
			       "an entry of links is not complete, or has more than it should", e);
	if (strcmp(pattern, "all_reduce") || !(l.alpha >= 0 && l.alpha <= 10) ||
	    !(l.beta >= 0 && l.beta <= 1) || !(l.error >= 0 && l.error <= 1e6) || l.points < 2 ||
	    l.alpha + l.beta <= 0)
		return damaged(name, "an entry of links is out of range", e);
	for (int i = 0; i < CALIBRATION_TRANSPORTS; i++) {
		if (strcmp(transport, topo_measured_transport_word(i)))
			continue;
		if (c->links[i].known)
			return damaged(name, "a transport is there twice", e);
		c->links[i] = l;
		return 0;
	}
	return damaged(name, "a transport is neither shm nor tcp", e);
}

static int read_gemm(json_t *o, const char *name, struct calibration *c, struct err *e)
{
	if (json_unpack(o, "{s:F !}", "flops", &c->flops))
		return damaged(name, "gemm is not complete, or has more than it should", e);
	return c->flops >= 1e3 && c->flops <= 1e21 ? 0 : damaged(name, "gemm is out of range", e);
}

static int read_chips(json_t *list, const char *name, struct calibration *c, struct err *e)
{
	size_t n = json_array_size(list);
	if (n < 1 || n > CALIBRATION_CHIPS)
		return damaged(name, "\"chips\" is not a list of 1 to 8 chips", e);
	for (size_t i = 0; i < n; i++) {
		struct measured_chip *chip = &c->chips[i];
		if (topo_measured_read_chip(json_array_get(list, i), name, chip, e))
			return -1;
		for (int j = 0; j < c->n_chips; j++)
			if (!strcmp(c->chips[j].name, chip->name))
				return damaged(name, "\"chips\" has a chip twice", e);
		c->n_chips++;
	}
	return 0;
}

/* Each of them is optional, but at least one must exist. */
static int read_parts(json_t *links, json_t *gemm, json_t *machines, json_t *exchanges,
		      json_t *chips, const char *name, struct calibration *c, struct err *e)
{
	bool linked = json_array_size(links) > 0;
	if ((linked && (c->ranks < 2 || c->ranks > CORES_MAX)) ||
	    (!linked && (c->ranks || (!gemm && !machines && !exchanges && !chips))))
		return damaged(name, "ranks does not go with links, or nothing was measured", e);
	for (size_t i = 0; i < json_array_size(links); i++)
		if (read_link(json_array_get(links, i), name, c, e))
			return -1;
	if ((gemm && read_gemm(gemm, name, c, e)) ||
	    (machines && topo_measured_read_machines(machines, name, &c->measured, e)) ||
	    (exchanges && topo_measured_read_exchanges(exchanges, name, &c->measured, e)) ||
	    (chips && read_chips(chips, name, c, e)))
		return -1;
	c->measured.cores = c->cores;
	return 0;
}

static int read_all(json_t *root, const char *name, struct calibration *c, struct err *e)
{
	const char *kind, *host, *cpu, *date;
	json_t *links, *gemm = NULL, *machines = NULL, *exchanges = NULL, *chips = NULL;
	int version;
	if (json_unpack(root, "{s:i, s:s, s:s, s:s, s:i, s:i, s:s, s:o, s?o, s?o, s?o, s?o !}",
			"version", &version, "kind", &kind, "host", &host, "cpu", &cpu, "cores",
			&c->cores, "ranks", &c->ranks, "date", &date, "links", &links, "gemm",
			&gemm, "machines", &machines, "exchanges", &exchanges, "chips", &chips))
		return damaged(name, "a field lacks, is of another type, or is unknown", e);
	if (version != VERSION || strcmp(kind, KIND))
		return damaged(name, "no calibration of version 2", e);
	if (!take_text(c->host, sizeof c->host, host) || !take_text(c->cpu, sizeof c->cpu, cpu) ||
	    !take_text(c->date, sizeof c->date, date) || c->cores < 1 || c->cores > CORES_MAX ||
	    !json_is_array(links))
		return damaged(name, "a field is out of range", e);
	return read_parts(links, gemm, machines, exchanges, chips, name, c, e);
}

int calibration_parse(const char *text, size_t n, const char *name, struct calibration *out,
		      struct err *e)
{
	json_error_t why;
	/* It is too large for a small stack, here and in the other functions of this file. */
	struct calibration *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", name);
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	int rc = root ? read_all(root, name, c, e) : damaged(name, "not JSON", e);
	json_decref(root);
	if (!rc)
		*out = *c;
	free(c);
	return rc;
}
