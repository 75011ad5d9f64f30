#include "libcomm/flight/taken.h"

#include "base/buf.h"
#include "base/clock.h"
#include "libcomm/flight/recorder.h"
#include "libcomm/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct moment {
	int64_t mono, wall_us;
};

struct taken_group {
	char *name;
	uint64_t id;
	const char *backend;
	int rank, size, *members;
	uint32_t seq, messages;
	struct record *ops;
	int n;
	int64_t lost; /* operations for which there was no room */
};

struct comm_tape {
	int rank, size;
	const char *host; /* of the world, which outlives this */
	struct moment now;
	struct err failure; /* the world's first error */
	struct taken_group *groups;
	int n;
};

/* --- Taking --- */

static void taken_group_fini(struct taken_group *g)
{
	free(g->name);
	free(g->members);
	free(g->ops);
}

static void taken_fini(struct comm_tape *t)
{
	for (int i = 0; i < t->n; i++)
		taken_group_fini(&t->groups[i]);
	free(t->groups);
}

void comm_tape_free(struct comm_tape *t)
{
	if (t)
		taken_fini(t);
	free(t);
}

static int read_ring(struct comm *c, struct taken_group *out)
{
	out->ops = calloc(RECORDER_OPS, sizeof *out->ops);
	if (!out->ops)
		return -1;
	out->n = comm_recorder_read(c->recorder, out->ops);
	return 0;
}

static int take_group(struct comm *c, enum take_from from, struct taken_group *out)
{
	size_t members = (size_t)c->size * sizeof *out->members;
	*out = (struct taken_group){
		.id = c->id, .backend = comm_backend(c), .rank = c->rank, .size = c->size
	};
	if (from == TAKE_TAPE) /* first, because it must stop in any case */
		out->ops = comm_recorder_tape_stop(c->recorder, &out->n, &out->lost);
	else if (read_ring(c, out))
		return -1;
	comm_recorder_counts(c->recorder, &out->seq, &out->messages);
	out->name = strdup(c->name);
	out->members = malloc(members);
	if (!out->name || !out->members)
		return -1;
	memcpy(out->members, c->members, members);
	return 0;
}

/* The lock is held. Without memory for the list every tape still stops. */
static int take_groups(struct world *w, enum take_from from, struct comm_tape *t)
{
	int n = 0, rc = 0;
	for (struct comm *c = w->groups; c; c = c->next)
		n++;
	t->groups = calloc((size_t)n + 1, sizeof *t->groups);
	for (struct comm *c = w->groups; c; c = c->next) {
		struct taken_group spare, *to = t->groups ? &t->groups[t->n++] : &spare;
		rc |= take_group(c, from, to);
		if (to == &spare)
			taken_group_fini(&spare);
	}
	return t->groups ? rc : -1;
}

int comm_taken_take(struct world *w, enum take_from from, struct comm_tape **out, struct err *e)
{
	struct comm_tape *t = calloc(1, sizeof *t), spare = { 0 }, *to = t ? t : &spare;
	to->rank = w->rank;
	to->size = w->size;
	to->host = w->peers[w->rank].host;
	to->now.mono = clock_ns();
	to->now.wall_us = (to->now.mono + clock_wall_offset_ns()) / 1000;
	if (world_failed(w))
		to->failure = w->first;
	pthread_mutex_lock(&w->lock); /* groups are opened and closed meanwhile */
	int rc = take_groups(w, from, to);
	pthread_mutex_unlock(&w->lock);
	if (t && !rc) {
		*out = t;
		return 0;
	}
	taken_fini(to);
	free(t);
	return err_set(e, ERR_NOMEM, "no memory for the flight recorder's text");
}

/* --- The text --- */

/* Length of the UTF-8 character at s; 0: it is not one. */
static int utf8_length(const unsigned char *s)
{
	int n = *s < 0x80                 ? 1
		: *s >= 0xc2 && *s < 0xe0 ? 2
		: (*s & 0xf0) == 0xe0     ? 3
		: *s >= 0xf0 && *s < 0xf5 ? 4
					  : 0;
	for (int i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* Overlong forms and surrogates. */
	if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] >= 0xa0) ||
	    (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

/* Bytes that are not UTF-8, such as those of a text cut off within a character, become question
 * marks. */
static void put_text(struct buf *b, const char *text)
{
	buf_puts(b, "\"");
	for (const unsigned char *s = (const unsigned char *)text; *s;) {
		int n = utf8_length(s);
		if (*s < 0x20)
			buf_printf(b, "\\u%04x", *s);
		else if (*s == '"' || *s == '\\')
			buf_printf(b, "\\%c", *s);
		else if (n)
			buf_add(b, s, (size_t)n);
		else
			buf_puts(b, "?");
		s += n ? n : 1;
	}
	buf_puts(b, "\"");
}

static void put_time(struct buf *b, const struct moment *now, const char *name, int64_t ns)
{
	if (ns)
		buf_printf(b, ", \"%s\": %" PRId64, name, now->wall_us - (now->mono - ns) / 1000);
}

static void put_messages(struct buf *b, const struct record *r)
{
	buf_printf(b, ", \"messages\": %d, \"peers\": [", r->messages);
	for (int i = 0; i < r->listed; i++)
		buf_printf(b, "%s{\"%s\": %d, \"nth\": %" PRIu32 ", \"bytes\": %" PRIu64 "}",
			   i ? ", " : "", r->message[i].send ? "to" : "from", r->message[i].peer,
			   r->message[i].nth, r->message[i].bytes);
	buf_puts(b, "]");
}

static void put_record(struct buf *b, const struct moment *now, const struct record *r)
{
	static const char *const states[] = {
		[RECORD_NONE] = "none", [RECORD_QUEUED] = "queued", [RECORD_RUNNING] = "running",
		[RECORD_DONE] = "done", [RECORD_FAILED] = "failed",
	};
	bool begun = r->state != RECORD_QUEUED;
	buf_printf(b, "{\"number\": %" PRIu64 ", \"op\": \"%s\", \"state\": \"%s\"", r->number,
		   comm_op_word(r->kind), states[r->state]);
	if (begun)
		buf_printf(b, ", \"seq\": %" PRIu32 ", \"bytes\": %" PRIu64, r->seq, r->bytes);
	if (r->kind != OP_P2P && r->kind != OP_BARRIER)
		buf_printf(b, ", \"type\": \"%s\"", comm_op_type_word(r->type));
	if (comm_op_has(r->kind, OP_REDUCES))
		buf_printf(b, ", \"redop\": \"%s\"", comm_op_redop_word(r->redop));
	if (comm_op_has(r->kind, OP_ROOTED))
		buf_printf(b, ", \"root\": %d", r->root);
	if (r->algorithm)
		buf_printf(b, ", \"algorithm\": \"%s\"", r->algorithm);
	put_time(b, now, "queued_us", r->queued);
	put_time(b, now, "start_us", r->start);
	put_time(b, now, "end_us", r->end);
	if (begun && r->kind == OP_P2P)
		put_messages(b, r);
	buf_puts(b, "}");
}

static void put_group(struct buf *b, const struct moment *now, const struct taken_group *g)
{
	buf_puts(b, "{\"name\": ");
	put_text(b, g->name);
	buf_printf(b,
		   ", \"id\": \"%016" PRIx64
		   "\", \"backend\": \"%s\", \"rank\": %d, \"members\": [",
		   g->id, g->backend, g->rank);
	for (int r = 0; r < g->size; r++)
		buf_printf(b, "%s%d", r ? ", " : "", g->members[r]);
	buf_printf(b, "],\n\"seq\": %" PRIu32 ", \"messages\": %" PRIu32, g->seq, g->messages);
	if (g->lost)
		buf_printf(b, ", \"lost\": %" PRId64, g->lost);
	buf_puts(b, ", \"ops\": [");
	for (int i = 0; i < g->n; i++) {
		buf_puts(b, i ? ",\n" : "\n");
		put_record(b, now, &g->ops[i]);
	}
	buf_puts(b, "]}");
}

static void put_error(struct buf *b, const struct err *why)
{
	buf_puts(b, "\"error\": ");
	if (!why->code) {
		buf_puts(b, "null,\n");
		return;
	}
	buf_printf(b, "{\"code\": \"%s\", \"text\": ", err_word(why->code));
	put_text(b, why->text);
	buf_puts(b, "},\n");
}

int comm_tape_write(const struct comm_tape *t, struct buf *out, struct err *e)
{
	buf_printf(out, "{\"muster_comm_dump\": 1, \"rank\": %d, \"size\": %d, \"host\": ", t->rank,
		   t->size);
	put_text(out, t->host);
	buf_printf(out, ", \"pid\": %d, \"time_us\": %" PRId64 ",\n", (int)getpid(),
		   t->now.wall_us);
	put_error(out, &t->failure);
	buf_puts(out, "\"groups\": [");
	for (int i = 0; i < t->n; i++) {
		put_group(out, &t->now, &t->groups[i]);
		buf_puts(out, i + 1 < t->n ? ",\n" : "");
	}
	buf_puts(out, "]}\n");
	return buf_failed(out) ? err_set(e, ERR_NOMEM, "no memory for the flight recorder's text")
			       : 0;
}

int64_t comm_tape_lost(const struct comm_tape *t)
{
	int64_t lost = 0;
	for (int i = 0; i < t->n; i++)
		lost += t->groups[i].lost;
	return lost;
}
