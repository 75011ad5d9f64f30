#include "libcomm/flight/trace.h"

#include "base/human.h"
#include "base/json_member.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 0 if it is absent. */
static int get_optional(const json_t *o, const char *key, int64_t most, int64_t *out, struct err *e)
{
	*out = 0;
	return json_object_get(o, key) ? json_member_int64(o, key, 0, most, out, e) : 0;
}

/* The index of the word in o[key]. */
static int get_word(const json_t *o, const char *key, const char *(*word)(int), int count, int *out,
		    struct err *e)
{
	const char *text = json_string_value(json_object_get(o, key));
	for (int i = 0; text && i < count; i++)
		if (!strcmp(text, word(i))) {
			*out = i;
			return 0;
		}
	return err_set(e, ERR_CORRUPT, "\"%s\" is %s%.40s", key,
		       text ? "the unknown word " : "no text", text ? text : "");
}

static const char *kind_word(int i)
{
	return comm_op_word((enum op_kind)i);
}

static const char *type_word(int i)
{
	return comm_op_type_word((enum comm_type)i);
}

static const char *redop_word(int i)
{
	return comm_op_redop_word((enum comm_op)i);
}

static const char *state_word(int i)
{
	static const char *const words[] = { "none", "queued", "running", "done", "failed" };
	return words[i];
}

/* --- Operations --- */

const char *comm_trace_op_word(const struct trace_op *op)
{
	return *op->name ? op->name : comm_op_word(op->kind);
}

static int read_message(const json_t *o, int ranks, struct trace_message *m, struct err *e)
{
	m->send = json_object_get(o, "to") != NULL;
	return json_member_int(o, m->send ? "to" : "from", 0, ranks - 1, &m->peer, e) ||
			       json_member_int64(o, "nth", 0, UINT32_MAX, &m->nth, e) ||
			       json_member_int64(o, "bytes", 0, INT64_MAX, &m->bytes, e)
		       ? -1
		       : 0;
}

static int read_messages(const json_t *o, int ranks, struct trace_op *op, struct err *e)
{
	const json_t *peers = json_object_get(o, "peers");
	size_t n = json_array_size(peers);
	if (json_member_int(o, "messages", 0, INT32_MAX, &op->messages, e))
		return -1;
	if (!json_is_array(peers) || n > RECORDER_MESSAGES || n > (size_t)op->messages)
		return err_set(e, ERR_CORRUPT, "a send/recv of %d messages lists %zu", op->messages,
			       n);
	op->listed = (int)n;
	for (size_t i = 0; i < n; i++)
		if (read_message(json_array_get(peers, i), ranks, &op->message[i], e))
			return -1;
	return 0;
}

/* Another library's name of the operation. */
static void read_name(const json_t *o, struct trace_op *op)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	if (!name)
		return;
	snprintf(op->name, sizeof op->name, "%.*s", TRACE_OP_NAME - 1, name);
	human_plain(op->name);
}

static int read_op(const json_t *o, int ranks, struct trace_op *op, struct err *e)
{
	int kind = 0, state = 0, type = 0, redop = 0;
	*op = (struct trace_op){ .root = -1 };
	if (get_word(o, "op", kind_word, OP_KIND_COUNT, &kind, e) ||
	    get_word(o, "state", state_word, RECORD_FAILED + 1, &state, e) ||
	    json_member_int64(o, "number", 1, INT64_MAX, &op->number, e) ||
	    get_optional(o, "start_us", INT64_MAX, &op->start_us, e) ||
	    get_optional(o, "end_us", INT64_MAX, &op->end_us, e))
		return -1;
	read_name(o, op);
	op->kind = (enum op_kind)kind;
	op->state = (enum record_state)state;
	bool begun = state != RECORD_QUEUED;
	if (kind != OP_P2P && kind != OP_BARRIER &&
	    get_word(o, "type", type_word, COMM_U8 + 1, &type, e))
		return -1;
	if (comm_op_has(op->kind, OP_REDUCES) &&
	    get_word(o, "redop", redop_word, COMM_PROD + 1, &redop, e))
		return -1;
	if (comm_op_has(op->kind, OP_ROOTED) &&
	    json_member_int(o, "root", 0, ranks - 1, &op->root, e))
		return -1;
	op->type = (enum comm_type)type;
	op->redop = (enum comm_op)redop;
	if (begun && (json_member_int64(o, "seq", 1, UINT32_MAX, &op->seq, e) ||
		      json_member_int64(o, "bytes", 0, INT64_MAX, &op->bytes, e)))
		return -1;
	return begun && kind == OP_P2P ? read_messages(o, ranks, op, e) : 0;
}

static int read_ops(const json_t *list, struct trace_part *p, struct err *e)
{
	size_t n = json_array_size(list);
	if (!json_is_array(list) || n > COMM_TAPE_OPS)
		return err_set(e, ERR_CORRUPT, "\"ops\" is not a list of at most %d operations",
			       COMM_TAPE_OPS);
	p->ops = calloc(n + 1, sizeof *p->ops);
	if (!p->ops)
		return err_set(e, ERR_NOMEM, "no memory for %zu operations", n);
	for (; p->n < (int)n; p->n++) {
		struct trace_op *op = &p->ops[p->n];
		if (read_op(json_array_get(list, (size_t)p->n), p->group->size, op, e))
			return err_prefix(e, "operation %d", p->n);
		if (p->n && op->number <= op[-1].number)
			return err_set(
				e, ERR_CORRUPT,
				"operation %d: its number is not larger than the one before it",
				p->n);
		if (op->kind != OP_P2P && op->seq > p->seq)
			p->seq = op->seq;
	}
	return 0;
}

/* --- Groups --- */

static struct trace_group *find_group(const struct trace *t, uint64_t id)
{
	for (int i = 0; i < t->n; i++)
		if (t->groups[i]->id == id)
			return t->groups[i];
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	const int *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static int check_distinct(const int *members, int n, struct err *e)
{
	int *sorted = malloc((size_t)n * sizeof *sorted), twice = -1;
	if (!sorted)
		return err_set(e, ERR_NOMEM, "no memory for %d members", n);
	memcpy(sorted, members, (size_t)n * sizeof *sorted);
	qsort(sorted, (size_t)n, sizeof *sorted, by_value);
	for (int i = 1; i < n; i++)
		if (sorted[i] == sorted[i - 1])
			twice = sorted[i];
	free(sorted);
	return twice < 0 ? 0 : err_set(e, ERR_CORRUPT, "rank %d is a member twice", twice);
}

static int read_members(const json_t *list, int world, int *members, int n, struct err *e)
{
	for (int i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, (size_t)i);
		if (!json_is_integer(v) || json_integer_value(v) < 0 ||
		    json_integer_value(v) >= world)
			return err_set(e, ERR_CORRUPT, "member %d is not a rank of the world", i);
		members[i] = (int)json_integer_value(v);
	}
	return 0;
}

static void free_group(struct trace_group *g)
{
	if (!g)
		return;
	free(g->members);
	free(g->part);
	free(g);
}

static struct trace_group *new_group(struct trace *t, uint64_t id, const char *name,
				     const int *members, int n)
{
	struct trace_group **more = realloc(t->groups, ((size_t)t->n + 1) * sizeof *more);
	struct trace_group *g = calloc(1, sizeof *g);
	if (more)
		t->groups = more;
	if (g) {
		g->members = calloc((size_t)n, sizeof *g->members);
		g->part = calloc((size_t)n, sizeof(struct trace_part *));
	}
	if (!more || !g || !g->members || !g->part) {
		free_group(g);
		return NULL;
	}
	g->id = id;
	g->size = n;
	size_t length = strnlen(name, sizeof g->name - 1);
	memcpy(g->name, name, length);
	human_plain(g->name);
	memcpy(g->members, members, (size_t)n * sizeof *members);
	t->groups[t->n++] = g;
	return g;
}

/* The group with this id in all dumps; its members must be the same. */
static struct trace_group *join_group(struct trace *t, uint64_t id, const char *name,
				      const int *members, int n, struct err *e)
{
	struct trace_group *g = find_group(t, id);
	if (!g && check_distinct(members, n, e))
		return NULL;
	if (!g && !(g = new_group(t, id, name, members, n)))
		err_set(e, ERR_NOMEM, "no memory for a group of %d ranks", n);
	else if (g->size != n || memcmp(g->members, members, (size_t)n * sizeof *members)) {
		err_set(e, ERR_CORRUPT,
			"it has other members than in another dump: these are dumps of different "
			"worlds");
		return NULL;
	}
	return g;
}

static int get_id(const json_t *o, uint64_t *id, struct err *e)
{
	const char *text = json_string_value(json_object_get(o, "id"));
	if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
		return err_set(e, ERR_CORRUPT, "\"id\" is not 16 hex digits");
	*id = strtoull(text, NULL, 16);
	return 0;
}

static int read_part(struct trace *t, const json_t *o, int world_rank, struct trace_part *p,
		     struct err *e)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	const json_t *list = json_object_get(o, "members");
	size_t n = json_array_size(list);
	uint64_t id = 0;
	if (!name || !json_is_array(list) || n < 1 || n > (size_t)t->size)
		return err_set(e, ERR_CORRUPT, "it has no name, or no list of members");
	if (get_id(o, &id, e) || json_member_int(o, "rank", 0, (int)n - 1, &p->rank, e))
		return -1;
	int *members = calloc(n, sizeof *members);
	if (!members)
		return err_set(e, ERR_NOMEM, "no memory for %zu members", n);
	if (read_members(list, t->size, members, (int)n, e) == 0)
		p->group = join_group(t, id, name, members, (int)n, e);
	free(members);
	if (!p->group)
		return -1;
	if (p->group->members[p->rank] != world_rank)
		return err_set(e, ERR_CORRUPT, "member %d is rank %d, not this one", p->rank,
			       p->group->members[p->rank]);
	if (p->group->part[p->rank])
		return err_set(e, ERR_CORRUPT, "the group is there twice");
	p->group->part[p->rank] = p;
	return json_member_int64(o, "seq", 0, UINT32_MAX, &p->seq, e) ||
			       read_ops(json_object_get(o, "ops"), p, e)
		       ? -1
		       : 0;
}

/* --- A rank --- */

static int read_groups(struct trace *t, const json_t *list, int rank, struct err *e)
{
	struct trace_rank *r = &t->ranks[rank];
	size_t n = json_array_size(list);
	if (!json_is_array(list) || n > TRACE_GROUPS)
		return err_set(e, ERR_CORRUPT, "\"groups\" is not a list of at most %d groups",
			       TRACE_GROUPS);
	r->parts = calloc(n + 1, sizeof *r->parts);
	if (!r->parts)
		return err_set(e, ERR_NOMEM, "no memory for %zu groups", n);
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(list, i);
		const char *name = json_string_value(json_object_get(o, "name"));
		r->n++; /* so that a half-read one is freed too */
		if (read_part(t, o, rank, &r->parts[i], e))
			return err_prefix(e, "group %.40s", name ? name : "without a name");
	}
	return 0;
}

static int read_world(struct trace *t, int size, struct err *e)
{
	if (t->size && t->size != size)
		return err_set(e, ERR_CORRUPT, "its world has %d ranks, another dump's %d", size,
			       t->size);
	if (t->size)
		return 0;
	t->ranks = calloc((size_t)size, sizeof *t->ranks);
	if (!t->ranks)
		return err_set(e, ERR_NOMEM, "no memory for %d ranks", size);
	t->size = size;
	return 0;
}

static int read_dump(struct trace *t, const json_t *o, struct err *e)
{
	int version, size, rank;
	const char *host = json_string_value(json_object_get(o, "host"));
	if (json_member_int(o, "muster_comm_dump", 1, 1, &version, e) ||
	    json_member_int(o, "size", 1, TRACE_RANKS, &size, e) ||
	    json_member_int(o, "rank", 0, size - 1, &rank, e) || read_world(t, size, e))
		return -1;
	struct trace_rank *r = &t->ranks[rank];
	if (r->there)
		return err_set(e, ERR_CORRUPT, "a second dump of rank %d", rank);
	if (json_member_int64(o, "time_us", 0, INT64_MAX, &r->time_us, e))
		return -1;
	r->there = true;
	r->host = strdup(host ? host : "");
	if (!r->host)
		return err_set(e, ERR_NOMEM, "no memory for a host's name");
	human_plain(r->host);
	return read_groups(t, json_object_get(o, "groups"), rank, e);
}

int comm_trace_add_json(struct trace *t, const json_t *dump, const char *name, struct err *e)
{
	int rc = read_dump(t, dump, e);
	if (rc && e)
		human_plain(e->text);
	return rc ? err_prefix(e, "%s is not a flight recorder dump", name) : 0;
}

int comm_trace_add(struct trace *t, const char *text, size_t bytes, const char *name, struct err *e)
{
	json_error_t why;
	json_t *o = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
	if (!o)
		return err_set(e, ERR_CORRUPT, "%s:%d: %s", name, why.line, why.text);
	int rc = comm_trace_add_json(t, o, name, e);
	json_decref(o);
	return rc;
}

void comm_trace_fini(struct trace *t)
{
	for (int r = 0; t->ranks && r < t->size; r++) {
		for (int i = 0; i < t->ranks[r].n; i++)
			free(t->ranks[r].parts[i].ops);
		free(t->ranks[r].parts);
		free(t->ranks[r].host);
	}
	for (int i = 0; i < t->n; i++)
		free_group(t->groups[i]);
	free(t->groups);
	free(t->ranks);
	*t = (struct trace){ 0 };
}
