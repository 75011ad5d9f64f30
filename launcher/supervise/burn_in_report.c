/*
 * burn_in_report: what a burn-in has found, for people and programs.
 *
 * preflight.json is one object:
 *
 *     {"version": 1, "time": seconds since 1970, "seconds": what it took, "factor": [health] preflight_factor,
 *      "repeated": whether all was measured twice,
 *      "nodes": [{"node": name, "kind": number, "failed": "" or why,
 *                 "figures": [{"what": word of base/burn_in_figures.h, "device": number, "value": number,
 *                              "own": number by its calibration, "peer": the other end of a link}, …]}, …]}
 *
 * Values are in FLOP/s, bytes/s and seconds. "own" and "peer" may be absent.
 */
#include "base/clock.h"
#include "launcher/supervise/burn_in.h"
#include "launcher/supervise/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES_PRINTED = 4, NOTES_MOST = 256 };

static const char **new_names(const struct burn_in *b)
{
	const struct cluster *c = b->s->o.machines;
	const char **names = calloc((size_t)c->n_nodes + 1, sizeof *names);
	for (int i = 0; names && i < c->n_nodes; i++)
		names[i] = c->nodes[i].name;
	return names;
}

/* The index of a node of the pool; -1: it was not measured. */
static int index_of(const struct burn_in *b, int number)
{
	for (int i = 0; i < b->n; i++)
		if (b->nodes[i].number == number)
			return i;
	return -1;
}

static bool is_bad(const struct burn_in *b, int number)
{
	int i = number < 0 ? -1 : index_of(b, number);
	return i >= 0 && *b->nodes[i].why;
}

/* Names the figures of a node that are bad, the worst one first. */
static void blame_nodes(struct burn_in *b, const char *const *names)
{
	for (int f = 0; f < b->findings.n; f++) {
		const struct burn_in_finding *x = &b->findings.of[f];
		int i = x->fault == BURN_IN_PEERS ? index_of(b, x->figure.node) : -1;
		struct buf text = BUF_INIT;
		if (i < 0 || b->nodes[i].lost)
			continue;
		if (*b->nodes[i].why)
			buf_printf(&text, "%s; ", b->nodes[i].why);
		supervise_burn_in_describe(x, names, &text);
		if (text.len < sizeof b->nodes[i].why)
			snprintf(b->nodes[i].why, sizeof b->nodes[i].why, "%s", buf_str(&text));
		buf_fini(&text);
	}
}

/* If most of several nodes break down or are late, the fault is not theirs: the machines are busy,
 * or the job's folder is slow. */
static bool most_are_lost(const struct burn_in *b)
{
	int lost = 0;
	for (int i = 0; i < b->n; i++)
		lost += b->nodes[i].lost;
	return b->n > 1 && 2 * lost > b->n;
}

static const char *first_reason(const struct burn_in *b)
{
	for (int i = 0; i < b->n; i++)
		if (b->nodes[i].lost)
			return b->nodes[i].why;
	return "";
}

static int count_bad(const struct burn_in *b)
{
	int bad = 0;
	for (int i = 0; i < b->n; i++)
		bad += *b->nodes[i].why != '\0';
	return bad;
}

/* --- Findings about no node in particular -------------------------------------------------- */

static void add_note(json_t *notes, const char *text)
{
	size_t i;
	const json_t *note;
	json_array_foreach(notes, i, note) if (!strcmp(json_string_value(note), text)) return;
	if (json_array_size(notes) < NOTES_MOST)
		json_array_append_new(notes, json_string(text));
}

/* Links of a bad node follow from it. Both ends report a link. */
static json_t *collect_notes(const struct burn_in *b, const char *const *names)
{
	json_t *notes = json_array();
	for (int f = 0; notes && f < b->findings.n; f++) {
		const struct burn_in_finding *x = &b->findings.of[f];
		struct buf text = BUF_INIT;
		if (x->fault == BURN_IN_PEERS || is_bad(b, x->figure.node) ||
		    is_bad(b, x->figure.peer))
			continue;
		supervise_burn_in_describe(x, names, &text);
		add_note(notes, buf_str(&text));
		buf_fini(&text);
	}
	for (int i = 0; notes && i < b->n; i++)
		if (*b->nodes[i].note && !*b->nodes[i].why && !*b->nodes[b->nodes[i].note_peer].why)
			add_note(notes, b->nodes[i].note);
	return notes;
}

static void print_notes(const struct burn_in *b, const json_t *notes)
{
	int n = (int)json_array_size(notes);
	for (int i = 0; i < n && i < NOTES_PRINTED; i++)
		supervise_terminal_event(b->s->o.term, TONE_WARN, "nodes", "%s",
					 json_string_value(json_array_get(notes, (size_t)i)));
	if (n > NOTES_PRINTED)
		supervise_terminal_event(b->s->o.term, TONE_WARN, "nodes",
					 "the event burn-in has %d more of these",
					 n - NOTES_PRINTED);
}

/* --- Files -------------------------------------------------------------------------------- */

static json_t *figure_json(const struct burn_in_figure *f, const char *const *names)
{
	json_t *o = json_pack("{s:s, s:i, s:f}", "what", supervise_burn_in_word(f->what), "device",
			      f->device, "value", f->value);
	if (o && f->own > 0)
		json_object_set_new(o, "own", json_real(f->own));
	if (o && f->peer >= 0)
		json_object_set_new(o, "peer", json_string(names[f->peer]));
	return o;
}

static json_t *node_json(const struct burn_in *b, int i, const char *const *names)
{
	int number = b->nodes[i].number;
	json_t *figures = json_array();
	for (int r = b->table.last[number] - 1; r >= 0; r = b->table.rows[r].before)
		json_array_insert_new(figures, 0, figure_json(&b->table.rows[r], names));
	return json_pack("{s:s, s:i, s:s, s:o}", "node", names[number], "kind",
			 b->s->o.machines->nodes[number].kind, "failed", b->nodes[i].why, "figures",
			 figures);
}

static void save_figures(const struct burn_in *b, double seconds, const char *const *names)
{
	struct err e = ERR_INIT;
	json_t *nodes = json_array();
	for (int i = 0; i < b->n; i++)
		json_array_append_new(nodes, node_json(b, i, names));
	json_t *o = json_pack("{s:i, s:f, s:f, s:f, s:b, s:o}", "version", 1, "time",
			      clock_wall_s(), "seconds", seconds, "factor",
			      b->s->d->job.health.preflight_factor, "repeated", b->repeated,
			      "nodes", nodes);
	if (!o)
		err_set(&e, ERR_NOMEM, "no memory to write the figures of the nodes");
	if (!o || rundir_save_preflight(b->s->o.run, o, &e))
		supervise_terminal_event(b->s->o.term, TONE_WARN, "warn", "%s", e.text);
	json_decref(o);
}

static void record(const struct burn_in *b, double seconds, json_t *notes)
{
	json_t *medians = json_object();
	for (int w = 0; w < BURN_IN_COUNT; w++) {
		enum burn_in_what what = (enum burn_in_what)w;
		double median = supervise_burn_in_median(&b->table, what);
		if (median > 0)
			json_object_set_new(medians, supervise_burn_in_word(what),
					    json_real(median));
	}
	rundir_event_burn_in(b->s->o.run, b->s->generation,
			     &(struct rundir_burn_in){ .nodes = b->n,
						       .failed = count_bad(b),
						       .seconds = seconds,
						       .repeated = b->repeated,
						       .medians = medians,
						       .notes = notes });
	json_decref(medians);
}

/* --- People ------------------------------------------------------------------------------- */

static void print_medians(const struct burn_in *b, double seconds)
{
	struct buf text = BUF_INIT;
	static const enum burn_in_what shown[] = { BURN_IN_PRODUCT, BURN_IN_MEMORY, BURN_IN_SEND,
						   BURN_IN_DISK_WRITE };
	const char *between = ": ";
	int bad = count_bad(b);
	buf_printf(&text, "%d of %d passed the burn-in, which took %.1f s", b->n - bad, b->n,
		   seconds);
	for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
		double median = supervise_burn_in_median(&b->table, shown[i]);
		if (median <= 0)
			continue;
		buf_puts(&text, between);
		supervise_burn_in_print(shown[i], median, &text);
		between = ", ";
	}
	supervise_terminal_event(b->s->o.term, bad ? TONE_WARN : TONE_PLAIN, "nodes", "%s",
				 buf_str(&text));
	b->s->recovery.burn_in_told = true;
	buf_fini(&text);
}

static void print_failure(const struct burn_in *b, const char *why)
{
	supervise_terminal_event(b->s->o.term, TONE_WARN, "nodes",
				 "they cannot be measured, and the run starts without that: %s",
				 why);
}

void supervise_burn_in_report(struct burn_in *b, double seconds)
{
	const char **names = new_names(b);
	if (!names || b->failed.code) {
		print_failure(b, names ? b->failed.text : "no memory for the names of the nodes");
		free(names);
		return;
	}
	bool most = most_are_lost(b);
	if (most)
		print_failure(b, first_reason(b));
	for (int i = 0; i < b->n && most; i++)
		*b->nodes[i].why = '\0';
	blame_nodes(b, names);
	if (!most)
		print_medians(b, seconds);
	json_t *notes = collect_notes(b, names);
	if (notes)
		record(b, seconds, notes);
	print_notes(b, notes);
	save_figures(b, seconds, names);
	for (int i = 0; i < b->n; i++)
		if (*b->nodes[i].why)
			supervise_checks_fail(b->s, b->nodes[i].number, b->nodes[i].why);
	json_decref(notes);
	free(names);
}
