/* attached: connections without a socket, whose messages somebody else carries. */
#include "launcher/connection.h"

#include <stdlib.h>
#include <string.h>

int launcher_connections_attach(struct connections *all, const struct connection_carrier *by,
				const unsigned char secret[AUTH_SECRET_BYTES],
				struct connection **out, struct err *e)
{
	struct connection *c = NULL;
	int rc = 0;
	/* nobody can measure how long it takes */
	if (memcmp(all->secret, secret, AUTH_SECRET_BYTES))
		rc = err_set(e, ERR_AUTH, "the agent does not know the secret of this generation");
	else if (!(c = calloc(1, sizeof *c)))
		rc = err_set(e, ERR_NOMEM, "no memory for a connection");
	if (rc) {
		by->closed(by->arg);
		return rc;
	}
	c->fd = -1;
	c->attached = true;
	c->carrier = *by;
	launcher_connection_join(c, all);
	*out = c;
	return 0;
}

void launcher_connection_deliver(struct connection *c, const struct msg *m)
{
	if (c->open && m->generation == c->generation)
		c->owner->o.message(c->owner->o.arg, c, m);
}

int launcher_attached_send(struct connection *c, enum msg_type type, json_t *body, struct err *e)
{
	(void)e;
	c->carrier.sent(c->carrier.arg, c->generation, type, body);
	return 0;
}

int launcher_attached_send_packed(struct connection *c, const struct buf *packed, struct err *e)
{
	struct msg m = { 0 };
	int rc = msg_unpack(packed->data, packed->len, c->generation, &m, e);
	if (!rc)
		c->carrier.sent(c->carrier.arg, c->generation, m.type, m.body);
	msg_fini(&m);
	return rc;
}

/* A callback of the connection may be under way, so it is freed later. */
void launcher_attached_close(struct connection *c)
{
	c->next = c->owner->dropped;
	c->owner->dropped = c;
	c->carrier.closed(c->carrier.arg);
}

void launcher_attached_free(struct connections *all)
{
	for (struct connection *c = all->dropped, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	all->dropped = NULL;
}
