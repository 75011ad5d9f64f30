#include "agent/health/health.h"

#include "agent/health/kinds.h"
#include "agent/health/text.h"
#include "topo/discover/nvml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* Seconds until the same suspicion makes it look at all processes again. */
#define ASK_AGAIN_S 60

/* The shares and rates of a shorter window say nothing. */
#define WINDOW_MIN_S 0.05

/* The share of the time without a core from which it is asked who has it. */
#define SUSPICIOUS 0.1

bool health_read_own(const struct health *h, const char *name, char *out, size_t size)
{
	char path[96];
	if (h->o.pid)
		snprintf(path, sizeof path, "proc/%d/%.70s", h->o.pid, name);
	else
		snprintf(path, sizeof path, "proc/self/%.70s", name);
	return health_text_read(h->root, path, out, size);
}

bool health_read_thread(const struct health *h, const char *name, char *out, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "task/%d/%.32s", h->thread, name);
	return h->thread > 0 && health_read_own(h, path, out, size);
}

const struct health_series *health_series_of(const struct health *h, const char *word)
{
	int i = 0;
	while (strcmp(health_kinds[i].word, word))
		i++;
	return &h->series[i];
}

double health_value(const struct health *h, const char *word)
{
	const struct health_series *s = health_series_of(h, word);
	return s->known ? s->value : 0;
}

static void find_disk(struct health *h)
{
	struct stat st;
	char *slash;
	snprintf(h->disk, sizeof h->disk, "%s", h->o.disk ? h->o.disk : "");
	/* The folder may not exist yet. */
	while (*h->disk && stat(h->disk, &st) && (slash = strrchr(h->disk, '/')))
		*slash = '\0';
	if (!*h->disk || stat(h->disk, &st)) {
		h->disk[0] = '\0';
		return;
	}
	h->disk_major = major(st.st_dev);
	h->disk_minor = minor(st.st_dev);
}

/* The affinity may change while the process runs. */
static void read_cpus(struct health *h)
{
	char text[8192];
	h->cpus[0] = '\0';
	if (!health_read_own(h, "status", text, sizeof text))
		return;
	const char *at = strstr(text, "\nCpus_allowed_list:");
	if (!at)
		return;
	at += strlen("\nCpus_allowed_list:");
	at += strspn(at, " \t");
	size_t len = strcspn(at, "\n");
	if (len < sizeof h->cpus)
		snprintf(h->cpus, sizeof h->cpus, "%.*s", (int)len, at);
}

static bool applies(const struct health *h, const struct health_kind *k)
{
	return k->scope == HEALTH_OF_RANK ||
	       (k->scope == HEALTH_OF_NODE ? h->o.node : h->watch != NULL);
}

static bool is_counter(const struct health_kind *k)
{
	return k->type != HEALTH_LEVEL;
}

static void read_kind(struct health *h, int i)
{
	const struct health_kind *k = &health_kinds[i];
	struct health_series *s = &h->series[i];
	double value = 0, second = 0;
	if (!applies(h, k) || !k->read(h, &value, &second) || !isfinite(value)) {
		s->began = false;
		return;
	}
	/* A counter that falls is another one than before. */
	if (is_counter(k) && (!s->began || value < s->last || second < s->last_second)) {
		s->first = value;
		s->first_second = second;
		s->began = true;
	}
	s->last = value;
	s->last_second = second;
	s->sum += value;
	s->n++;
}

static void begin_window(struct health *h, double now)
{
	h->began = now;
	h->gpu_read = false;
	h->gpu.slow = 0;
	for (int i = 0; i < health_n_kinds; i++) {
		struct health_series *s = &h->series[i];
		s->first = s->last;
		s->first_second = s->last_second;
		s->sum = 0;
		s->n = 0;
	}
}

struct health *health_open(const struct health_options *o, double now)
{
	struct health *h = calloc(1, sizeof *h);
	struct health_series *series = calloc((size_t)health_n_kinds, sizeof *series);
	if (!h || !series) {
		free(h);
		free(series);
		return NULL;
	}
	h->o = *o;
	h->series = series;
	snprintf(h->root, sizeof h->root, "%s", o->root ? o->root : "");
	find_disk(h);
	h->o.disk = NULL;
	read_cpus(h);
	if (o->gpu && *o->gpu)
		topo_gpu_watch_open(o->library ? o->library : NVML_LIBRARY, o->gpu, &h->watch,
				    NULL);
	snprintf(h->gpu_bus, sizeof h->gpu_bus, "%s", o->gpu ? o->gpu : "");
	for (int i = 0; i < health_n_kinds; i++)
		read_kind(h, i);
	begin_window(h, now);
	return h;
}

void health_close(struct health *h)
{
	if (!h)
		return;
	topo_gpu_watch_close(h->watch);
	free(h->series);
	free(h);
}

void health_set_thread(struct health *h, int thread)
{
	h->thread = thread;
}

void health_sample(struct health *h)
{
	for (int i = 0; i < health_n_kinds; i++)
		if (health_kinds[i].often)
			read_kind(h, i);
}

/* --- Judging a window ------------------------------------------------------------------------- */

static void set_value(struct health_series *s, const struct health_kind *k, double window)
{
	double rise = s->last - s->first, second = s->last_second - s->first_second;
	s->known = is_counter(k) ? s->began : s->n > 0;
	if (!s->known)
		return;
	switch (k->type) {
	case HEALTH_SHARE:
		s->value = fmin(rise / window, 1);
		break;
	case HEALTH_RATE:
		s->value = rise / window;
		break;
	case HEALTH_RISE:
		s->value = rise;
		break;
	case HEALTH_LEVEL:
		s->value = s->sum / s->n;
		break;
	case HEALTH_RATIO:
		s->value = second > 0 ? rise / second : 0;
		break;
	}
}

static void print_value(const struct health_kind *k, double value, char *out, size_t size)
{
	if (!strcmp(k->unit, "%"))
		snprintf(out, size, "%.0f %%", 100 * value);
	else if (!strcmp(k->unit, "/s"))
		snprintf(out, size, "%.0f per second", value);
	else
		snprintf(out, size, "%.0f%s%s", value, *k->unit ? " " : "", k->unit);
}

/* Replaces {value} and {detail} in the sentence. */
static void print_sentence(const struct health *h, const struct health_kind *k, double value,
			   char *out, size_t size)
{
	char number[32], detail[240] = "";
	size_t at = 0;
	print_value(k, value, number, sizeof number);
	if (k->detail)
		k->detail(h, detail, sizeof detail);
	for (const char *from = k->sentence; *from && at + 1 < size;) {
		const char *insert = !strncmp(from, "{value}", 7)    ? number
				     : !strncmp(from, "{detail}", 8) ? detail
								     : NULL;
		if (!insert) {
			out[at++] = *from++;
			continue;
		}
		from += strcspn(from, "}") + 1;
		int n = snprintf(out + at, size - at, "%s", insert);
		at = at + (size_t)n < size ? at + (size_t)n : size - 1;
	}
	out[at] = '\0';
}

/* The part of the window that the value explains. A thread that is throttled waits for a core, too.
 * So what it waits while it is throttled, or in periods of the limit in which it was throttled, is
 * explained already. */
static double share_of(const struct health *h, const struct health_kind *k, double value)
{
	bool share = !strcmp(k->unit, "%") && k->type != HEALTH_RATIO;
	if (!strcmp(k->word, "delay") || !strcmp(k->word, "niced"))
		value = fmax(fmin(value - health_value(h, "throttled"),
				  value * (1 - health_value(h, "throttled-periods"))),
			     0);
	return fmin(k->cost * (share ? value : 1), 1);
}

static void fill_finding(struct health *h, int i, struct health_finding *f)
{
	const struct health_kind *k = &health_kinds[i];
	struct health_series *s = &h->series[i];
	*f = (struct health_finding){ .kind = k->word,
				      .share = share_of(h, k, s->value),
				      .alarm = k->alarm && !s->warned,
				      .node = k->scope == HEALTH_OF_NODE };
	s->warned |= k->alarm;
	if (k->scope == HEALTH_OF_GPU)
		snprintf(f->object, sizeof f->object, "GPU %s", h->gpu_bus);
	else if (k->scope == HEALTH_OF_NODE && k->detail)
		k->detail(h, f->object, sizeof f->object);
	print_sentence(h, k, s->value, f->text, sizeof f->text);
}

int health_judge(struct health *h, double now, struct health_finding out[HEALTH_FINDINGS])
{
	double window = now - h->began;
	int n = 0;
	if (!(window >= WINDOW_MIN_S))
		return 0;
	read_cpus(h);
	for (int i = 0; i < health_n_kinds; i++) {
		const struct health_kind *k = &health_kinds[i];
		struct health_series *s = &h->series[i];
		if (!k->often)
			read_kind(h, i);
		set_value(s, k, window);
		if (n < HEALTH_FINDINGS && s->known && k->from > 0 && s->value >= k->from)
			fill_finding(h, i, &out[n++]);
	}
	begin_window(h, now);
	return n;
}

bool health_suspects_others(const struct health *h, double now)
{
	return health_value(h, "delay") >= SUSPICIOUS &&
	       (!*h->others || now - h->asked >= ASK_AGAIN_S);
}

void health_note_others(struct health *h, double now, const char *text,
			struct health_finding *findings, int n)
{
	h->asked = now;
	snprintf(h->others, sizeof h->others, "%s", text);
	const struct health_series *s = health_series_of(h, "delay");
	for (int f = 0; f < n; f++)
		if (!strcmp(findings[f].kind, "delay"))
			print_sentence(h, &health_kinds[s - h->series], s->value, findings[f].text,
				       sizeof findings[f].text);
}

const char *health_cpus(const struct health *h)
{
	return h->cpus;
}

double health_clock(const struct health *h)
{
	return health_value(h, "clock");
}

double health_gpu_clock(const struct health *h)
{
	return health_value(h, "gpu-clock");
}
