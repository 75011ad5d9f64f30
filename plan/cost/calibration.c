#include "plan/cost/calibration.h"

#include "base/file.h"
#include "topo/host.h"

#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIND "muster-calibration"

enum { VERSION = 2, FILE_MAX = 4 * 1024 * 1024, CORES_MAX = 65536 };

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

/* $XDG_CONFIG_HOME/muster/calibration.json, or the same below ~/.config; "" if neither variable is
 * set. */
static void calibration_default(char *path, size_t size)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	*path = '\0';
	if (config && *config)
		snprintf(path, size, "%s/muster/calibration.json", config);
	else if (home && *home)
		snprintf(path, size, "%s/.config/muster/calibration.json", home);
}

/* --- Tools that measure --- */

static int load(const char *path, struct calibration *out, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = file_slurp(path, FILE_MAX, &text, e) ||
				 calibration_parse(text.data ? text.data : "", text.len, path, out,
						   e)
			 ? -1
			 : 0;
	buf_fini(&text);
	return rc;
}

/* Whether the half of the file that is a host's was measured on this one. */
static int check_host(const char *path, const struct calibration *out, struct err *e)
{
	struct calibration *here = calloc(1, sizeof *here);
	int rc = here ? calibration_here(here, e)
		      : err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	if (!rc && (strcmp(out->cpu, here->cpu) || out->cores != here->cores))
		rc = err_set(e, ERR_USAGE,
			     "%s was measured on %s, %d cores (%s), and this machine is %s, %d "
			     "cores; run muster bench "
			     "calibrate here",
			     path, out->cpu, out->cores, out->host, here->cpu, here->cores);
	free(here);
	return rc;
}

/* Keeps the chips, which end the struct. */
static void forget_host(struct calibration *c)
{
	memset(c, 0, offsetof(struct calibration, n_chips));
}

static int load_ours(const char *path, struct calibration *out, struct err *e)
{
	return load(path, out, e) || check_host(path, out, e) ? -1 : 0;
}

int calibration_begin(const char *word, char *path, size_t size, struct calibration *out,
		      struct err *e)
{
	char folder[PATH_MAX];
	snprintf(path, size, "%s", word ? word : "");
	if (!word)
		calibration_default(path, size);
	if (!*path)
		return err_set(e, ERR_USAGE,
			       "--calibrate: neither XDG_CONFIG_HOME nor HOME is set; give a file, "
			       "as --calibrate=FILE");
	snprintf(folder, sizeof folder, "%s", path);
	if (file_make_dirs(dirname(folder), e))
		return -1;
	if (load(path, out, NULL))
		memset(out, 0, sizeof *out); /* no compound literal: it would be on the stack */
	else if (check_host(path, out, NULL))
		forget_host(out);
	return calibration_here(out, e);
}

int calibration_find(const char *word, struct calibration *out, struct err *e)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s", word ? word : "auto");
	if (!strcmp(path, "auto"))
		calibration_default(path, sizeof path);
	if (!*path || !strcmp(path, "none"))
		return err_set(e, ERR_NOTFOUND, "there is no calibration");
	return load_ours(path, out, e);
}

int calibration_save(const struct calibration *c, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	calibration_write(c, &text);
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "no memory for the calibration")
				   : file_replace(path, text.data, text.len, e);
	buf_fini(&text);
	return rc;
}

/* --- Plans --- */

/* Discovered nodes are this host, or count as equal to it. */
static bool is_like_here(const struct node_kind *k)
{
	return !strcmp(k->device, "cpu");
}

static int use_kind(const struct calibration *c, const struct calibration_link *link,
		    enum measured_transport transport, struct node_kind *k, struct err *e)
{
	if (link->known) {
		k->link_latency = fmax(link->alpha, 1e-12);
		k->link_bandwidth = 1 / fmax(link->beta, 1e-15);
	}
	if (c->flops > 0)
		k->device_flops = c->flops / k->devices;
	if (!c->measured.n_machines && !c->measured.n_exchanges)
		return 0;
	struct measured *copy = malloc(sizeof *copy);
	if (!copy)
		return err_set(e, ERR_NOMEM, "no memory for a calibration; close other programs");
	*copy = c->measured;
	copy->transport = transport;
	free(k->measured);
	k->measured = copy;
	return 0;
}

/* What a cluster's figures say of them. */
static void say_host(const struct calibration *c, const struct calibration_link *link,
		     struct cluster *cluster)
{
	bool products = c->flops > 0 || c->measured.n_machines;
	char ranks[32] = "";
	if (!link->known && !products && !c->measured.n_exchanges)
		return;
	if (link->known)
		snprintf(ranks, sizeof ranks, " with %d ranks", c->ranks);
	snprintf(cluster->figures, sizeof cluster->figures, "%s%s%s%s as measured on %s, %s",
		 link->known ? "links inside a node" : "", ranks,
		 link->known && products ? " and " : "",
		 c->measured.n_machines ? "every operation"
		 : c->flops > 0         ? "matrix products"
					: "",
		 c->host, c->date);
}

static int use_host(const struct calibration *c, enum measured_transport transport,
		    struct cluster *cluster, struct err *e)
{
	const struct calibration_link *link = &c->links[transport];
	for (int i = 0; i < cluster->n_kinds; i++)
		if (is_like_here(&cluster->kinds[i]) &&
		    use_kind(c, link, transport, &cluster->kinds[i], e))
			return -1;
	say_host(c, link, cluster);
	return 0;
}

/* --- Plans: GPUs --- */

/* The exchanges of a chip in the form that exchange.h reads. Every one of them is one of all the
 * host's GPUs, each of which has an agent of its own. */
static struct measured *exchanges_of(const struct measured_chip *chip)
{
	struct measured *m = calloc(1, sizeof *m);
	for (int i = 0; m && i < chip->n_exchanges; i++) {
		struct measured_exchange x = chip->exchanges[i];
		x.transport = m->transport;
		x.crowd = chip->devices;
		topo_measured_add_exchange(m, &x);
	}
	return m;
}

static int use_chip(const struct measured_chip *chip, struct node_kind *k, struct err *e)
{
	bool exchanges = chip->n_exchanges && chip->devices == k->devices;
	struct measured_chip *copy = malloc(sizeof *copy);
	struct measured *m = exchanges ? exchanges_of(chip) : NULL;
	if (!copy || (exchanges && !m)) {
		free(copy);
		free(m);
		return err_set(e, ERR_NOMEM, "no memory for a calibration; close other programs");
	}
	*copy = *chip;
	free(k->chip);
	k->chip = copy;
	free(k->measured);
	k->measured = m;
	return 0;
}

/* Adds to the cluster's figures. What does not fit is cut. */
static void say_other_chips(const struct calibration *c, const struct node_kind *k,
			    struct cluster *cluster)
{
	size_t len = strlen(cluster->figures);
	snprintf(cluster->figures + len, sizeof cluster->figures - len,
		 "%spublished figures of %.40s: the calibration has %.60s%s", len ? "; " : "",
		 k->device, c->chips[0].name,
		 c->n_chips > 1 ? " and others, and not this one" : ", which is another chip");
}

static int use_chips(const struct calibration *c, struct cluster *cluster, struct err *e)
{
	for (int i = 0; i < cluster->n_kinds; i++) {
		struct node_kind *k = &cluster->kinds[i];
		int at = 0;
		while (at < c->n_chips && !topo_measured_chip_is_of(&c->chips[at], k))
			at++;
		if (is_like_here(k) || !c->n_chips)
			continue;
		if (at == c->n_chips)
			say_other_chips(c, k, cluster);
		else if (use_chip(&c->chips[at], k, e))
			return -1;
	}
	return 0;
}

static int apply(const char *path, bool named, enum measured_transport transport,
		 struct cluster *cluster, struct err *e)
{
	struct err why = ERR_INIT;
	struct calibration *c = malloc(sizeof *c);
	bool host = false;
	for (int i = 0; i < cluster->n_kinds; i++)
		host |= is_like_here(&cluster->kinds[i]);
	int bad = c ? load(path, c, &why)
		    : err_set(&why, ERR_NOMEM, "%s: no memory to read it", path),
	    unfit = !bad && host ? check_host(path, c, &why) : bad, rc = 0;
	if (unfit && named)
		rc = err_set(e, ERR_USAGE, "[launch] calibration: %s", why.text);
	else if (unfit)
		snprintf(cluster->figures, sizeof cluster->figures,
			 "estimates, not measured: %.250s", why.text);
	else if (host)
		rc = use_host(c, transport, cluster, e);
	if (!rc && !bad)
		rc = use_chips(c, cluster, e);
	free(c);
	return rc;
}

int calibration_apply(const char *word, const char *transport, struct cluster *cluster,
		      struct err *e)
{
	char path[1024];
	bool found = !strcmp(word, "auto");
	if (!strcmp(word, "none"))
		return 0;
	snprintf(path, sizeof path, "%s", word);
	if (found)
		calibration_default(path, sizeof path);
	if (found && access(path, R_OK))
		return 0;
	return apply(path, !found, strcmp(transport, "tcp") ? MEASURED_SHM : MEASURED_TCP, cluster,
		     e);
}
