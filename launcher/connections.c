#include "launcher/connection.h"

#include "base/net.h"
#include "base/owner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTS_PER_TURN = 64 }; /* of the loop, so that the others are served too */

static void on_listener(uv_poll_t *poll, int status, int events);

void launcher_connections_free(struct connections *all)
{
	if (all->closing && !all->handles) {
		explicit_bzero(all->secret, sizeof all->secret);
		free(all);
	}
}

void launcher_connections_listen(struct connections *all)
{
	if (all->o.listener < 0 || all->closing || all->listening)
		return;
	all->listening = true;
	uv_poll_start(&all->listener, UV_READABLE, on_listener);
}

static void report_trouble(struct connections *all, const struct err *why)
{
	if (!all->troubled)
		all->o.trouble(all->o.arg, why);
	all->troubled = true;
}

void launcher_connections_remove(struct connection *c)
{
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	c->at = NULL;
	c->owner->n[c->standing]--;
}

void launcher_connections_move(struct connection *c, enum standing to)
{
	struct connection **first = &c->owner->first[to];
	if (c->at)
		launcher_connections_remove(c);
	c->next = *first;
	c->at = first;
	if (c->next)
		c->next->at = &c->next;
	*first = c;
	c->standing = to;
	c->owner->n[to]++;
}

/* The oldest of this standing from `from` (NULL: from anywhere), and how many there are. */
static struct connection *find_oldest(const struct connections *all, enum standing of,
				      const struct in6_addr *from, int *count)
{
	struct connection *oldest = NULL;
	*count = 0;
	for (struct connection *c = all->first[of]; c; c = c->next) /* the last one first */
		if (!from || !memcmp(&c->from, from, sizeof *from)) {
			oldest = c;
			++*count;
		}
	return oldest;
}

/* The stranger to close now that one from `from` has come. NULL: there is room. */
static struct connection *find_excess_stranger(const struct connections *all,
					       const struct in6_addr *from)
{
	int silent = all->n[STANDING_SILENT], greeted = all->n[STANDING_GREETED], count;
	if (silent > all->o.most_per_address) {
		struct connection *oldest = find_oldest(all, STANDING_SILENT, from, &count);
		if (count > all->o.most_per_address)
			return oldest;
	}
	if (silent > all->o.most)
		return find_oldest(all, STANDING_SILENT, NULL, &count);
	/* There are at most `most` agents, so somebody repeats a recorded first packet. */
	return silent + greeted > 2 * all->o.most ? find_oldest(all, STANDING_GREETED, NULL, &count)
						  : NULL;
}

static void make_room(struct connections *all, struct in6_addr from)
{
	for (struct connection *c; (c = find_excess_stranger(all, &from));) {
		struct err e;
		if (launcher_connection_read(c)) /* its first packet may have come: look again */
			continue;
		err_set(&e, ERR_TIMEOUT, "did not identify itself before others connected");
		launcher_connection_lose(c, &e); /* does nothing if it has just closed */
	}
}

/* Takes in an accepted connection; closes it at once if it is of another user. */
static int admit_connection(struct connections *all, int fd, struct err *e)
{
	if (owner_of_peer(fd) == OWNER_OTHER) {
		close(fd);
		return 0;
	}
	struct in6_addr from = launcher_connection_address(fd);
	if (launcher_connections_adopt(all, fd, e)) /* it is closed on failure */
		return -1;
	make_room(all, from);
	return 0;
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
	struct connections *all = poll->data;
	(void)events;
	for (int n = 0; n < ACCEPTS_PER_TURN && all->listening; n++) {
		int fd = -1;
		struct err e = ERR_INIT;
		if (status < 0)
			err_set(&e, ERR_NET, "cannot watch the control socket: %s",
				uv_strerror(status));
		if (status < 0 || net_accept(all->o.listener, &fd, &e)) {
			uv_poll_stop(poll); /* the next tick tries again */
			all->listening = false;
			report_trouble(all, &e);
			return;
		}
		if (fd < 0)
			return;
		if (admit_connection(all, fd, &e))
			report_trouble(all, &e);
	}
}

int launcher_connections_open(const struct connections_options *o, struct connections **out,
			      struct err *e)
{
	struct connections *all = calloc(1, sizeof *all);
	if (!all)
		return err_set(e, ERR_NOMEM, "no memory for the control connections");
	all->o = *o;
	if (o->listener >= 0) {
		if (uv_poll_init(o->loop, &all->listener, o->listener)) {
			free(all);
			return err_set(e, ERR_NET, "cannot watch the control socket");
		}
		all->listener.data = all;
		all->handles++;
	}
	launcher_connections_listen(all);
	*out = all;
	return 0;
}

static void drop_all_connections(struct connections *all)
{
	for (int i = 0; i < STANDING_COUNT; i++)
		while (all->first[i])
			launcher_connection_drop(all->first[i]);
}

static void on_listener_closed(uv_handle_t *h)
{
	struct connections *all = h->data;
	close(all->o.listener);
	all->handles--;
	launcher_connections_free(all);
}

void launcher_connections_close(struct connections *all)
{
	if (!all)
		return;
	all->closing = true;
	drop_all_connections(all);
	launcher_attached_free(all);
	if (all->o.listener >= 0)
		uv_close((uv_handle_t *)&all->listener, on_listener_closed);
	launcher_connections_free(all);
}

void launcher_connections_renew(struct connections *all,
				const unsigned char secret[AUTH_SECRET_BYTES], uint32_t generation,
				double now)
{
	for (int i = 0; i < STANDING_COUNT; i++)
		for (struct connection *c = all->first[i], *next; c; c = next) {
			next = c->next;
			if (c->rank < 0 || c->generation != generation)
				launcher_connection_drop(c);
		}
	memcpy(all->secret, secret, AUTH_SECRET_BYTES);
	all->generation = generation;
	all->troubled = false;
	all->now = now;
}

/* Closing a connection may change the list, so each search starts from the beginning. */
static struct connection *find_overdue(struct connections *all)
{
	for (int i = 0; i < STANDING_CLAIMED; i++)
		for (struct connection *c = all->first[i]; c; c = c->next)
			if (!c->working && all->now - c->since > all->o.patience)
				return c;
	return NULL;
}

void launcher_connections_tick(struct connections *all, double now)
{
	all->now = now;
	for (struct connection *c; (c = find_overdue(all));) {
		struct err e;
		err_set(&e, ERR_TIMEOUT, "did not identify itself within %g s", all->o.patience);
		launcher_connection_lose(c, &e);
	}
	launcher_attached_free(all);
	launcher_connections_listen(all);
}

int launcher_connections_strangers(const struct connections *all)
{
	return all->n[STANDING_SILENT] + all->n[STANDING_GREETED];
}
