#include "agent/tools/torch_dump.h"

#include "agent/tools/torch_ops.h"
#include "base/hash.h"
#include "libcomm/flight/diagnose.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "" if it has none. */
static const char *group_name(const json_t *entry)
{
	const json_t *group = json_object_get(entry, "process_group");
	const char *name = json_string_value(json_array_get(group, 0));
	return name ? name : "";
}

static const char *group_description(const json_t *entry)
{
	const json_t *group = json_object_get(entry, "process_group");
	const char *text = json_string_value(json_array_get(group, 1));
	return text && strcmp(text, "undefined") ? text : "";
}

/* --- The world --- */

/* The text "[0, 1]" of a group's ranks, as a new list; NULL: there is none, or it is malformed. */
static json_t *configured_members(const json_t *dump, const char *name)
{
	const json_t *group = json_object_get(json_object_get(dump, "pg_config"), name);
	const char *at = json_string_value(json_object_get(group, "ranks"));
	json_t *o = at ? json_loads(at, 0, NULL) : NULL;
	size_t i;
	json_t *rank;
	bool ok = json_array_size(o) > 0;
	json_array_foreach(o, i, rank) ok &= json_is_integer(rank) &&
					     json_integer_value(rank) >= 0 &&
					     json_integer_value(rank) < TRACE_RANKS;
	if (ok)
		return o;
	json_decref(o);
	return NULL;
}

static void grow_world(struct torch_world *w, int rank)
{
	w->size = w->size > rank ? w->size : rank + 1;
}

static void look_at_config(struct torch_world *w, const json_t *dump)
{
	const char *name;
	json_t *group;
	json_object_foreach(json_object_get(dump, "pg_config"), name, group)
	{
		json_t *members = configured_members(dump, name), *rank;
		size_t i;
		json_array_foreach(members, i, rank) grow_world(w, (int)json_integer_value(rank));
		json_decref(members);
	}
}

static int note_seen(struct torch_world *w, const char *name, int rank)
{
	char key[16];
	json_t *ranks = json_object_get(w->seen, name);
	snprintf(key, sizeof key, "%d", rank);
	if (!ranks) {
		ranks = json_object();
		if (json_object_set_new(w->seen, name, ranks))
			return -1;
	}
	return json_object_get(ranks, key) ? 0 : json_object_set_new(ranks, key, json_true());
}

int tool_torch_look(struct torch_world *w, const json_t *dump, int rank, struct err *e)
{
	size_t i;
	json_t *entry;
	if (rank < 0 || rank >= TRACE_RANKS)
		return err_set(e, ERR_CORRUPT, "rank %d is out of range", rank);
	w->seen = w->seen ? w->seen : json_object();
	if (!w->seen)
		return err_set(e, ERR_NOMEM, "no memory for the groups");
	grow_world(w, rank);
	look_at_config(w, dump);
	json_array_foreach(json_object_get(dump, "entries"), i,
			   entry) if (note_seen(w, group_name(entry),
						rank)) return err_set(e, ERR_NOMEM,
								      "no memory for the groups");
	return 0;
}

void tool_torch_world_fini(struct torch_world *w)
{
	json_decref(w->seen);
	*w = (struct torch_world){ 0 };
}

/* --- A group, as one rank recorded it --- */

static json_t *all_ranks(const struct torch_world *w, const json_t *only)
{
	json_t *list = json_array();
	char key[16];
	for (int r = 0; r < w->size; r++) {
		snprintf(key, sizeof key, "%d", r);
		if (!only || json_object_get(only, key))
			json_array_append_new(list, json_integer(r));
	}
	return list;
}

static json_t *members_of(const struct torch_world *w, const json_t *dump, const json_t *entry)
{
	const char *name = group_name(entry);
	json_t *list = configured_members(dump, name);
	if (list)
		return list;
	bool whole = !strcmp(group_description(entry), "default_pg");
	return all_ranks(w, whole ? NULL : json_object_get(w->seen, name));
}

/* -1: it is no member. */
static int find_member(const json_t *members, int rank)
{
	size_t i;
	json_t *member;
	json_array_foreach(members, i,
			   member) if (json_integer_value(member) == rank) return (int)i;
	return -1;
}

/* Equal on all ranks that give the group the same name and members. */
static json_t *id_of(const char *name, const json_t *members)
{
	char *list = json_dumps(members, JSON_COMPACT);
	uint64_t id = hash_text(name) * 31 + hash_text(list ? list : "");
	free(list);
	return json_sprintf("%016" PRIx64, id);
}

/* A new group; NULL: no memory, or *outside: this rank is no member. */
static json_t *make_group(const struct torch_world *w, const json_t *dump, const json_t *entry,
			  int rank, bool *outside)
{
	const char *name = group_name(entry), *description = group_description(entry);
	json_t *members = members_of(w, dump, entry);
	int member = find_member(members, rank);
	*outside = member < 0;
	if (member < 0) {
		json_decref(members);
		return NULL;
	}
	json_t *id = id_of(name, members);
	return json_pack("{s:s, s:o, s:o, s:i, s:i, s:[], s:{}}", "name",
			 *description ? description : name, "id", id, "members", members, "rank",
			 member, "seq", 0, "ops", "counts");
}

/* --- Its operations --- */

/* The number of the message among those to or from its peer, from 0 on. */
static int64_t count_message(json_t *group, bool send, int peer)
{
	char key[24];
	json_t *counts = json_object_get(group, "counts");
	snprintf(key, sizeof key, "%c%d", send ? '>' : '<', peer);
	json_int_t n = json_integer_value(json_object_get(counts, key));
	json_object_set_new(counts, key, json_integer(n + 1));
	return n;
}

/* Sets the lists of a message. whole: the recorder has lost no entry. */
static int set_messages(json_t *op, json_t *group, const json_t *entry, bool whole)
{
	int ranks = (int)json_array_size(json_object_get(group, "members")), peer;
	json_t *peers = json_array();
	bool send, one = !tool_torch_is_coalesced(entry);
	if (one && whole && tool_torch_peer(entry, ranks, &send, &peer))
		json_array_append_new(peers,
				      json_pack("{s:i, s:I, s:O}", send ? "to" : "from", peer,
						"nth", (json_int_t)count_message(group, send, peer),
						"bytes", json_object_get(op, "bytes")));
	return json_object_set_new(op, "messages", json_integer(one)) ||
			       json_object_set_new(op, "peers", peers)
		       ? -1
		       : 0;
}

static json_int_t get_int(const json_t *op, const char *key)
{
	return json_integer_value(json_object_get(op, key));
}

static bool is_message(const json_t *op)
{
	return json_object_get(op, "peers") != NULL;
}

/* A part has no events, so it never completes and is never retired. Its number is that of the
 * coalesced operation, but a message before them, and an earlier coalesced operation, may have the
 * same number. */
static bool is_open_part(const json_t *op)
{
	return !strcmp(json_string_value(json_object_get(op, "state")), "running") &&
	       !json_object_get(op, "coalesced");
}

static bool is_part(const json_t *op, const json_t *whole)
{
	return get_int(op, "seq") == get_int(whole, "seq") && is_message(op) == is_message(whole) &&
	       is_open_part(op);
}

/* Moves its parts, which are the last operations, into the coalesced one. */
static int take_parts(json_t *ops, json_t *whole)
{
	size_t end = json_array_size(ops), first = end;
	json_int_t bytes = 0, messages = 0;
	json_t *peers = json_object_get(whole, "peers");
	while (first > 0 && is_part(json_array_get(ops, first - 1), whole))
		first--;
	for (size_t i = first; i < end; i++) {
		const json_t *part = json_array_get(ops, first);
		bytes = bytes > INT64_MAX - get_int(part, "bytes") ? INT64_MAX
								   : bytes + get_int(part, "bytes");
		messages += get_int(part, "messages");
		if (peers && json_array_size(peers) < RECORDER_MESSAGES &&
		    json_array_extend(peers, json_object_get(part, "peers")))
			return -1;
		json_array_remove(ops, first);
	}
	return json_object_set_new(whole, "bytes", json_integer(bytes)) ||
			       json_object_set_new(whole, "coalesced", json_true()) ||
			       (peers &&
				json_object_set_new(whole, "messages", json_integer(messages)))
		       ? -1
		       : 0;
}

/* Whether a coalesced operation is one of messages. Not every version of PyTorch says so. */
static bool joins_messages(const json_t *ops, const json_t *entry)
{
	const json_t *last = json_array_get(ops, json_array_size(ops) - 1);
	json_int_t seq = get_int(entry, "p2p_seq_id");
	return json_is_true(json_object_get(entry, "is_p2p")) ||
	       (last && is_message(last) && is_open_part(last) &&
		get_int(last, "seq") == (seq ? seq : 1));
}

static int add_op(json_t *group, const json_t *entry, bool whole, struct err *e)
{
	json_t *ops = json_object_get(group, "ops"),
	       *op = tool_torch_op(entry, joins_messages(ops, entry), e);
	if (!op)
		return e && e->code != ERR_NONE ? -1 : 0;
	bool message = !strcmp(json_string_value(json_object_get(op, "op")), comm_op_word(OP_P2P));
	json_int_t seq = get_int(op, "seq");
	if ((message && set_messages(op, group, entry, whole)) ||
	    (tool_torch_is_coalesced(entry) && take_parts(ops, op))) {
		json_decref(op);
		return err_set(e, ERR_NOMEM, "no memory for its messages");
	}
	if (!message && seq > get_int(group, "seq"))
		json_object_set_new(group, "seq", json_integer(seq));
	return json_array_append_new(ops, op) ? err_set(e, ERR_NOMEM, "no memory for it") : 0;
}

/* --- A dump --- */

/* groups: by name; those that this rank is no member of are null. */
static int add_entry(const struct torch_world *w, const json_t *dump, json_t *groups, int rank,
		     const json_t *entry, bool whole, struct err *e)
{
	json_t *group = json_object_get(groups, group_name(entry));
	bool outside = false;
	if (!json_is_object(entry))
		return err_set(e, ERR_CORRUPT, "it is no object");
	if (!group) {
		group = make_group(w, dump, entry, rank, &outside);
		if (json_object_set_new(groups, group_name(entry), outside ? json_null() : group))
			return err_set(e, ERR_NOMEM, "no memory for its group");
	}
	return outside || json_is_null(group) ? 0 : add_op(group, entry, whole, e);
}

static json_t *list_groups(json_t *groups)
{
	json_t *list = json_array(), *group;
	const char *name;
	json_object_foreach(groups, name, group)
	{
		if (json_is_null(group))
			continue;
		json_object_del(group, "counts");
		json_array_append(list, group);
	}
	return list;
}

static int add_entries(const struct torch_world *w, const json_t *dump, json_t *groups, int rank,
		       struct err *e)
{
	const json_t *entries = json_object_get(dump, "entries");
	bool whole = get_int(json_array_get(entries, 0), "record_id") == 0;
	struct err why = ERR_INIT;
	size_t i;
	json_t *entry;
	json_array_foreach(entries, i, entry) if (add_entry(w, dump, groups, rank, entry, whole,
							    &why)) return err_set(e, why.code,
										  "entry %zu: %s",
										  i, why.text);
	return 0;
}

json_t *tool_torch_convert(const struct torch_world *w, const json_t *dump, int rank,
			   int64_t time_us, struct err *e)
{
	json_t *groups = json_object(), *out = NULL;
	if (groups && !add_entries(w, dump, groups, rank, e)) {
		out = json_pack("{s:i, s:i, s:i, s:I, s:o}", "muster_comm_dump", 1, "rank", rank,
				"size", w->size, "time_us", (json_int_t)time_us, "groups",
				list_groups(groups));
		if (!out)
			err_set(e, ERR_NOMEM, "no memory for the dump of rank %d", rank);
	} else if (!groups) {
		err_set(e, ERR_NOMEM, "no memory for the dump of rank %d", rank);
	}
	json_decref(groups);
	return out;
}
