#include "launcher/supervise/rendezvous.h"

#include "launcher/supervise/supervisor.h"

#include <stdlib.h>

enum { PART_BYTES = 32 * 1024 }; /* of one message, about; MSG_MAX is its limit */

struct published {
	json_t *values; /* NULL: they have not come */
	json_t *wants;  /* a list of ranks */
};

void supervise_rendezvous_close(struct supervisor *s)
{
	struct rendezvous_state *r = &s->rendezvous;
	for (int i = 0; r->ranks && i < r->world; i++) {
		json_decref(r->ranks[i].values);
		json_decref(r->ranks[i].wants);
	}
	free(r->ranks);
	*r = (struct rendezvous_state){ 0 };
}

void supervise_rendezvous_reset(struct supervisor *s)
{
	supervise_rendezvous_close(s);
	s->rendezvous.world = s->world;
}

static json_t *wanted_value(const struct supervisor *s, const json_t *wants, size_t i)
{
	return s->rendezvous.ranks[json_integer_value(json_array_get(wants, i))].values;
}

/* Sends a rank the next part of what it wants. */
static int send_part(struct supervisor *s, int rank, struct err *e)
{
	struct rank_state *k = &s->ranks[rank];
	const json_t *wants = s->rendezvous.ranks[rank].wants;
	json_t *values = json_array(), *body = NULL;
	size_t bytes = 0, next = (size_t)k->endpoints, end = json_array_size(wants);
	int rc = values ? 0 : -1;
	for (; !rc && next < end && bytes < PART_BYTES; next++) {
		json_t *value = wanted_value(s, wants, next);
		bytes += json_dumpb(value, NULL, 0, JSON_COMPACT);
		rc = json_array_append(values, value);
	}
	if (!rc)
		body = msg_world_endpoints_json(
			&(struct msg_world_endpoints){ .first = k->endpoints, .values = values });
	k->endpoints = (int)next; /* a failure to send may end the generation */
	rc = body ? launcher_connection_send(k->connection, MSG_WORLD_ENDPOINTS, body, e)
		  : err_set(e, ERR_NOMEM, "no memory for the endpoints of the ranks");
	json_decref(values);
	json_decref(body);
	return rc;
}

void supervise_rendezvous_go_on(struct supervisor *s, int rank)
{
	const struct rendezvous_state *r = &s->rendezvous;
	const struct rank_state *k = &s->ranks[rank];
	if (!r->ranks || r->n < r->world)
		return;
	size_t end = json_array_size(r->ranks[rank].wants);
	/* a failure closes the connection */
	while (k->connection && (size_t)k->endpoints < end &&
	       launcher_connection_is_drained(k->connection))
		if (send_part(s, rank, NULL))
			break;
}

static bool are_ranks(const struct supervisor *s, const json_t *wants)
{
	size_t n = json_array_size(wants);
	if (!json_is_array(wants) || n > (size_t)s->world)
		return false;
	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(wants, i);
		json_int_t rank = json_integer_value(item);
		if (!json_is_integer(item) || rank < 0 || rank >= s->world)
			return false;
	}
	return true;
}

int supervise_rendezvous_note(struct supervisor *s, int rank, const struct msg_endpoints *m,
			      struct err *e)
{
	struct rendezvous_state *r = &s->rendezvous;
	if (r->world != s->world)
		return 0;
	if (!r->ranks)
		r->ranks = calloc((size_t)r->world, sizeof *r->ranks);
	if (!r->ranks)
		return err_set(e, ERR_NOMEM, "no memory for the endpoints of %d ranks", s->world);
	if (s->by_pmix || r->ranks[rank].values || !json_is_object(m->values))
		return err_set(e, ERR_PROTO,
			       "message endpoints: it was sent twice or at the wrong time");
	if (!are_ranks(s, m->wants))
		return err_set(e, ERR_PROTO, "message endpoints: wants is not a list of ranks");
	r->ranks[rank] = (struct published){ json_incref(m->values), json_incref(m->wants) };
	if (++r->n < r->world)
		return 0;
	for (int i = 0; i < s->world; i++)
		supervise_rendezvous_go_on(s, i);
	return 0;
}
