#include "launcher/supervise/evidence.h"

#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The share of a window from which a cause that this process computes explains that a rank is
 * slow. */
#define EXPLAINS 0.15
/* The clock of a rank, as a part of its peers', below which it is a cause. */
#define CLOCK_LOW 0.9
/* The weights of causes that overlap: a process that is stopped needs no other reason, and the wait
 * for a core has a reason of its own unless none was found. */
#define STOPPED_COUNTS 1.3
#define NO_CORE_COUNTS 0.8

static void forget(struct evidence *v)
{
	for (int r = 0; v->ranks && r < v->world; r++)
		json_decref(v->ranks[r].findings);
	free(v->ranks);
	free(v->watcher);
	v->ranks = NULL;
	v->watcher = NULL;
}

/* Without memory nothing is kept. */
void supervise_evidence_reset(struct supervisor *s)
{
	struct evidence *v = &s->evidence;
	forget(v);
	v->world = s->world;
	v->n_nodes = s->d->cluster.n_nodes;
	v->ranks = calloc((size_t)v->world, sizeof *v->ranks);
	v->watcher = malloc((size_t)v->n_nodes * sizeof *v->watcher);
	if (!v->ranks || !v->watcher) {
		forget(v);
		return;
	}
	for (int i = 0; i < v->n_nodes; i++)
		v->watcher[i] = -1;
	for (int r = v->world - 1; r >= 0; r--)
		v->watcher[s->d->plan.ranks[r].node] = r;
}

void supervise_evidence_close(struct supervisor *s)
{
	forget(&s->evidence);
	free(s->evidence.alarms);
	s->evidence.alarms = NULL;
}

bool supervise_evidence_watches(const struct supervisor *s, int rank)
{
	const struct evidence *v = &s->evidence;
	return v->watcher && v->watcher[s->d->plan.ranks[rank].node] == rank;
}

/* --- Alarms ------------------------------------------------------------------------- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3u; /* FNV-1a */
	return (hash ^ 0xff) * 0x100000001b3u;
}

/* Whether this alarm was given before; notes it. */
static bool is_known(struct evidence *v, const char *node, const struct msg_finding *f)
{
	uint64_t hash = hash_text(hash_text(hash_text(0xcbf29ce484222325u, node), f->kind),
				  f->object);
	for (int i = 0; i < v->n_alarms; i++)
		if (v->alarms[i] == hash)
			return true;
	uint64_t *alarms = v->n_alarms < EVIDENCE_ALARMS
				   ? realloc(v->alarms, (size_t)(v->n_alarms + 1) * sizeof *alarms)
				   : NULL;
	if (!alarms)
		return true;
	v->alarms = alarms;
	v->alarms[v->n_alarms++] = hash;
	return false;
}

static void give_alarm(struct supervisor *s, int rank, const struct msg_finding *f)
{
	const char *node = supervise_node(s, rank);
	char text[500];
	if (is_known(&s->evidence, node, f))
		return;
	snprintf(text, sizeof text, "%s, rank %d: %.300s%s%.64s%s", node, rank, f->text,
		 *f->object ? " (" : "", f->object, *f->object ? ")" : "");
	rundir_event_health_alarm(s->o.run, s->generation,
				  &(struct rundir_health_alarm){ .rank = rank,
								 .node = node,
								 .kind = f->kind,
								 .object = f->object,
								 .text = text });
	supervise_terminal_event(s->o.term, TONE_WARN, "defect", "%s", text);
	int at = supervise_pool_find(&s->recovery.pool, node);
	if (at >= 0)
		supervise_suspect_note(s, at, SUSPECT_ERRORS, text, "");
}

/* --- Findings ----------------------------------------------------------------------- */

static int check_findings(json_t *list, struct err *e)
{
	struct msg_finding f;
	if (!json_is_array(list) || json_array_size(list) > EVIDENCE_FINDINGS)
		return err_set(e, ERR_PROTO,
			       "message health: its findings are not a list of at most %d",
			       EVIDENCE_FINDINGS);
	for (size_t i = 0; i < json_array_size(list); i++)
		if (msg_finding_read(json_array_get(list, i), &f, e))
			return -1;
	return 0;
}

int supervise_evidence_note(struct supervisor *s, int rank, const struct msg_health *m,
			    struct err *e)
{
	struct rank_evidence *k = s->evidence.ranks ? &s->evidence.ranks[rank] : NULL;
	struct msg_finding f;
	if (check_findings(m->findings, e))
		return -1;
	if (!k)
		return 0;
	json_decref(k->findings);
	k->findings = json_incref(m->findings);
	k->step = m->step;
	k->clock = isfinite(m->clock) && m->clock > 0 ? m->clock : 0;
	k->gpu_clock = isfinite(m->gpu_clock) && m->gpu_clock > 0 ? m->gpu_clock : 0;
	for (size_t i = 0; i < json_array_size(m->findings); i++)
		if (!msg_finding_read(json_array_get(m->findings, i), &f, NULL) && f.alarm)
			give_alarm(s, rank, &f);
	return 0;
}

/* --- The reason --------------------------------------------------------------------- */

struct cause_found {
	const char *kind;
	double share;
	bool node;
	char text[400];
};

static struct cause_found *stronger(struct cause_found *best, const char *kind, double share,
				    bool node)
{
	if (!(share > best->share))
		return NULL;
	best->kind = kind;
	best->share = share;
	best->node = node;
	return best;
}

static void consider_findings(const struct rank_evidence *k, struct cause_found *best)
{
	struct msg_finding f;
	for (size_t i = 0; k && i < json_array_size(k->findings); i++)
		if (!msg_finding_read(json_array_get(k->findings, i), &f, NULL) &&
		    stronger(best, f.kind, f.share, f.node))
			snprintf(best->text, sizeof best->text, "%.300s", f.text);
}

static void consider_clock(const char *what, double own, double peers, struct cause_found *best)
{
	if (own > 0 && peers > 0 && own < CLOCK_LOW * peers &&
	    stronger(best, "clock", 1 - own / peers, false))
		snprintf(best->text, sizeof best->text, "%s at %.2f GHz, its peers' at %.2f GHz",
			 what, 1e-3 * own, 1e-3 * peers);
}

const char *supervise_evidence_explain(const struct supervisor *s, int rank,
				       const struct evidence_window *w, char *out, size_t size,
				       bool *node)
{
	const struct rank_evidence *k = s->evidence.ranks ? &s->evidence.ranks[rank] : NULL;
	/* A rank that had no core may report in one window what happened in several. */
	double stalled = fmin(w->stalled / w->seconds, 1), delay = fmin(w->delay / w->seconds, 1);
	struct cause_found best = { .kind = "" };
	consider_findings(k, &best);
	if (k) {
		consider_clock("its cores run", k->clock, w->clock, &best);
		consider_clock("its GPU runs", k->gpu_clock, w->gpu_clock, &best);
	}
	/* A thread that is stopped is not ready to run; one without a core is. */
	bool was_stopped = stalled > EXPLAINS && delay < fmax(stalled / 2, EXPLAINS);
	if (was_stopped && stronger(&best, "stopped", STOPPED_COUNTS * stalled, false))
		snprintf(best.text, sizeof best.text,
			 "its process did not run at all for %.0f %% of the time: is it, or its "
			 "machine, stopped at times?",
			 100 * stalled);
	if (delay > EXPLAINS && stronger(&best, "no-core", NO_CORE_COUNTS * delay, false))
		snprintf(best.text, sizeof best.text,
			 "it waited for a core for %.0f %% of the time: do other processes use its "
			 "cores, or is its share of them limited?",
			 100 * delay);
	if (!*best.kind)
		snprintf(best.text, sizeof best.text,
			 "its node shows no reason: it has its cores, so look at their clock and "
			 "at its memory");
	snprintf(out, size, "; %s", best.text);
	*node = best.node;
	return best.kind;
}

bool supervise_evidence_disk(const struct supervisor *s, char *out, size_t size)
{
	const struct evidence *v = &s->evidence;
	struct msg_finding f;
	double most = 0;
	for (int r = 0; v->ranks && r < v->world; r++)
		for (size_t i = 0; i < json_array_size(v->ranks[r].findings); i++) {
			if (msg_finding_read(json_array_get(v->ranks[r].findings, i), &f, NULL) ||
			    (strcmp(f.kind, "disk") && strcmp(f.kind, "io-pressure")) ||
			    !(f.share > most))
				continue;
			most = f.share;
			snprintf(out, size, "on %.64s, %.300s", supervise_node(s, r), f.text);
		}
	return most > 0;
}

/* --- health.jsonl ------------------------------------------------------------------- */

/* What a line says, without the figures that change from window to window. */
static uint64_t hash_line(const struct rank_evidence *k, bool slow)
{
	struct msg_finding f;
	uint64_t hash = hash_text(0xcbf29ce484222325u, slow ? "slow" : "");
	for (size_t i = 0; i < json_array_size(k->findings); i++)
		if (!msg_finding_read(json_array_get(k->findings, i), &f, NULL))
			hash = hash_text(hash_text(hash, f.kind), f.object);
	return hash;
}

void supervise_evidence_record(struct supervisor *s, int rank, const struct evidence_window *w)
{
	struct rank_evidence *k = s->evidence.ranks ? &s->evidence.ranks[rank] : NULL;
	double now = supervise_now(s);
	if (!k || (!w->slow && !json_array_size(k->findings) && !k->written))
		return;
	uint64_t hash = hash_line(k, w->slow);
	bool again = now - k->written_at >= EVIDENCE_LINE_S;
	/* A slow rank's findings are recorded as they change; those of the others wait. */
	if (k->written && !again && (hash == k->written || !w->slow))
		return;
	if (hash == k->written && !w->slow && !json_array_size(k->findings))
		return;
	k->written = hash;
	k->written_at = now;
	json_t *none = k->findings ? NULL : json_array();
	rundir_health(s->o.run, s->generation,
		      &(struct rundir_health){ .rank = rank,
					       .node = supervise_node(s, rank),
					       .step = s->ranks[rank].step,
					       .steps = w->steps,
					       .slow = w->slow,
					       .pace_s = w->pace,
					       .peers_s = w->peers,
					       .clock = k->clock,
					       .gpu_clock = k->gpu_clock,
					       .findings = k->findings ? k->findings : none });
	json_decref(none);
}
