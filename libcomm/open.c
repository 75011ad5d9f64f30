/* Opens and closes the world and its groups. */
#include "libcomm/tcp/acceptor.h"
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/flight/dump.h"
#include "libcomm/device/device_group.h"
#include "libcomm/wire/wire.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOCKETS = 1 };

static const double LONGEST_S = 1e9; /* a longer time-out is no limit */
/* a host that is off is detected within this time, whatever the time-out */
static const double SILENCE_S = 60;

static struct world *new_world(const struct comm_bootstrap *boot, const struct comm_options *opt,
			       int algorithm, struct err *e)
{
	struct world *w = calloc(1, sizeof *w);
	if (w)
		w->peers = calloc((size_t)boot->size, sizeof *w->peers);
	if (!w || !w->peers) {
		free(w);
		err_set(e, ERR_NOMEM, "no memory for a world of %d ranks", boot->size);
		return NULL;
	}
	w->rank = boot->rank;
	w->size = boot->size;
	w->timeout_s = opt->timeout_s < LONGEST_S ? opt->timeout_s : 0;
	w->algorithm = algorithm;
	w->force_tcp = opt->backend && !strcmp(opt->backend, "tcp");
	w->integrity = opt->integrity;
	w->sockets = opt->sockets ? opt->sockets : SOCKETS;
	/* Half the time-out, so that it is detected before operations give up. The kernel counts in
	 * seconds. */
	w->silence_s = w->timeout_s <= 0 || w->timeout_s / 2 > SILENCE_S ? SILENCE_S
									 : w->timeout_s / 2;
	if (w->silence_s < 1)
		w->silence_s = 1;
	w->listener = -1;
	for (int r = 0; r < w->size; r++)
		w->peers[r] = (struct peer){ .pidfd = -1, .host_id = -1 - r };
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w->peers_changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return w;
}

static int make_card(struct card *card, struct wakeup_pipe *wakeup, bool share, struct err *e)
{
	*card = (struct card){ .memfd = -1, .wakeup = -1 };
	if (comm_wakeup_open(wakeup, e))
		return -1;
	card->wakeup = wakeup->tx;
	if (share && comm_segment_offer(&card->memfd, card->nonce, e)) {
		comm_wakeup_close(wakeup);
		return -1;
	}
	return 0;
}

static int open_world_group(struct world *w, const struct card *cards, int memfd,
			    struct wakeup_pipe wakeup, struct comm **out, struct err *e)
{
	int *members = calloc((size_t)w->size, sizeof *members);
	for (int r = 0; members && r < w->size; r++)
		members[r] = r;
	struct group_spec spec = { .world = w,
				   .id = 1,
				   .name = "world",
				   .members = members,
				   .rank = w->rank,
				   .size = w->size,
				   .cards = cards,
				   .memfd = memfd,
				   .wakeup = wakeup };
	int rc = members ? comm_group_open(&spec, out, e)
			 : err_set(e, ERR_NOMEM, "no memory for %d ranks", w->size);
	free(members);
	return rc;
}

static int wire_up_and_open(struct world *w, const struct comm_bootstrap *boot,
			    const struct comm_options *opt, struct card *cards, struct comm **out,
			    struct err *e)
{
	struct wakeup_pipe wakeup;
	int memfd;
	if (comm_wakeup_open(&wakeup, e))
		return -1;
	if (comm_wire_up(w, boot, opt, &wakeup, cards, &memfd, e)) {
		comm_wakeup_close(&wakeup);
		return -1;
	}
	return open_world_group(w, cards, memfd, wakeup, out, e);
}

static int join(struct world *w, const struct comm_bootstrap *boot, const struct comm_options *opt,
		struct comm **world, struct err *e)
{
	struct comm *c = NULL;
	struct card *cards = calloc((size_t)boot->size, sizeof *cards);
	if (!cards)
		return err_set(e, ERR_NOMEM, "no memory for %d ranks", boot->size);
	/* No rank may continue before all ranks have opened the objects that the others offer. */
	int rc = wire_up_and_open(w, boot, opt, cards, &c, e) || comm_barrier(c, e) ? -1 : 0;
	free(cards);
	if (!rc) {
		comm_wire_settle(w);
		*world = c;
		return 0;
	}
	if (opt->joining)
		opt->joining(opt->joining_arg, NULL);
	if (c)
		comm_group_free(c);
	return -1;
}

int comm_open(const struct comm_bootstrap *boot, const struct comm_options *opt,
	      struct comm **world, struct err *e)
{
	static const char *const backends[] = { "auto", "shm", "tcp" };
	bool known = !opt->backend;
	for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
		known |= opt->backend && !strcmp(opt->backend, backends[i]);
	if (!known)
		return err_set(e, ERR_USAGE, "backend \"%s\" is none of auto, shm, tcp",
			       opt->backend);
	if (boot->size < 1 || boot->rank < 0 || boot->rank >= boot->size)
		return err_set(e, ERR_USAGE, "rank %d of %d ranks does not exist", boot->rank,
			       boot->size);
	if (isnan(opt->timeout_s))
		return err_set(e, ERR_USAGE, "the time-out is not a number");
	if (opt->sockets < 0 || opt->sockets > COMM_SOCKETS_MAX)
		return err_set(e, ERR_USAGE,
			       "%d sockets a pair of ranks; 1 to %d are allowed, 0 is the default",
			       opt->sockets, COMM_SOCKETS_MAX);
	if ((unsigned)opt->integrity >= COMM_INTEGRITY_COUNT)
		return err_set(e, ERR_USAGE, "integrity %d is none of none, checksum, seal",
			       (int)opt->integrity);
	int algorithm;
	if (comm_algorithm_parse(opt->algorithm, &algorithm, e))
		return -1;
	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL,
			       "libsodium cannot start: no source of random numbers");
	struct world *w = new_world(boot, opt, algorithm, e);
	if (!w)
		return -1;
	if (comm_dump_open(w, opt->dump_dir, e)) {
		comm_world_free(w);
		return -1;
	}
	if (join(w, boot, opt, world, e)) {
		comm_world_free(w);
		return err_prefix(e, "rank %d of %d cannot join the world", boot->rank, boot->size);
	}
	return 0;
}

void comm_close(struct comm *c)
{
	if (!c)
		return;
	struct world *w = c->world;
	if (c->id != 1) {
		comm_group_free(c);
		return;
	}
	while (w->groups)
		comm_group_free(w->groups);
	comm_world_free(w);
}

/* --- Split --- */

int comm_group_all_gather_host(struct comm *c, const void *mine, void *all, size_t bytes,
			       struct err *e)
{
	struct op op = {
		.kind = OP_ALL_GATHER, .in = mine, .out = all, .count = bytes, .type = COMM_U8
	};
	if (c->open_requests)
		return err_set(
			e, ERR_USAGE,
			"%d asynchronous operations of the group are open; wait for them first",
			c->open_requests);
	return comm_group_run_host(c, &op, e);
}

static int run_host_barrier(struct comm *c, struct err *e)
{
	return comm_group_run_host(c, &(struct op){ .kind = OP_BARRIER }, e);
}

struct choice {
	int32_t color, key; /* as the rank published them */
	int rank;
};

static int compare_keys(const void *a, const void *b)
{
	const struct choice *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Moves the members of this rank's group, in order, to the front of all; returns how many there
 * are. */
static int pick_members(struct choice *all, int n, int color)
{
	int count = 0;
	for (int r = 0; r < n; r++)
		if (all[r].color == color)
			all[count++] = all[r];
	qsort(all, (size_t)count, sizeof *all, compare_keys);
	return count;
}

/* All ranks of a group compute the same number; every group has a different one. */
static uint64_t make_group_id(const struct comm *parent, int color)
{
	uint64_t x = parent->id * 0x9e3779b97f4a7c15u +
		     ((uint64_t)parent->splits << 32 | (uint32_t)color);
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) | 2; /* 1 is the world */
}

struct split_state {
	struct choice *all;
	struct card *cards, *mine; /* of the parent's ranks; of the new group's */
	int *members;
	int size, rank;
};

/* Gathers every rank's choice in s->all. */
static int gather_choices(struct comm *c, struct split_state *s, int color, int key, struct err *e)
{
	int32_t mine[2] = { color < 0 ? -1 : color, key };
	int32_t(*choices)[2] = calloc((size_t)c->size, sizeof *choices);
	if (!choices)
		return err_set(e, ERR_NOMEM, "no memory to split %d ranks", c->size);
	int rc = comm_group_all_gather_host(c, mine, choices, sizeof mine, e);
	for (int r = 0; rc == 0 && r < c->size; r++)
		s->all[r] = (struct choice){ choices[r][0], choices[r][1], r };
	free(choices);
	return rc;
}

static int open_split_group(struct comm *parent, const struct split_state *s, int color,
			    const char *name, int memfd, struct wakeup_pipe wakeup,
			    struct comm **out, struct err *e)
{
	for (int r = 0; r < s->size; r++) {
		s->members[r] = parent->members[s->all[r].rank];
		s->mine[r] = s->cards[s->all[r].rank];
	}
	struct group_spec spec = { .world = parent->world,
				   .id = make_group_id(parent, color),
				   .name = name,
				   .members = s->members,
				   .rank = s->rank,
				   .size = s->size,
				   .cards = s->mine,
				   .memfd = memfd,
				   .wakeup = wakeup };
	return comm_group_open(&spec, out, e);
}

/* Exchanges the cards, opens the group, and waits until all ranks have. */
static int exchange_cards_and_split(struct comm *parent, struct split_state *s, int color,
				    const char *name, struct comm **out, struct err *e)
{
	struct wakeup_pipe wakeup = WAKEUP_NONE;
	struct comm *new = NULL;
	struct card *card = &s->cards[parent->rank];
	struct choice me = s->all[parent->rank];
	*card = (struct card){ .memfd = -1, .wakeup = -1 };
	if (color >= 0) {
		s->size = pick_members(s->all, parent->size, color);
		for (int r = 0; r < s->size; r++)
			if (s->all[r].rank == me.rank)
				s->rank = r;
		if (make_card(card, &wakeup, !parent->world->force_tcp && s->size > 1, e))
			return -1;
	}
	int memfd = card->memfd;
	if (comm_group_all_gather_host(parent, card, s->cards, sizeof *card, e)) {
		comm_wakeup_close(&wakeup);
		if (memfd >= 0)
			close(memfd);
		return -1;
	}
	if (color >= 0 && open_split_group(parent, s, color, name, memfd, wakeup, &new, e))
		return -1;
	if (run_host_barrier(parent, e) ||
	    (parent->device_group && comm_device_group_split(parent, color, me.key, new, e))) {
		if (new)
			comm_group_free(new);
		return -1;
	}
	*out = new;
	return 0;
}

static int split_group(struct comm *c, int color, int key, const char *name, struct comm **out,
		       struct err *e)
{
	size_t n = (size_t)c->size;
	struct split_state s = { .all = calloc(n, sizeof *s.all),
				 .cards = calloc(n, sizeof *s.cards),
				 .mine = calloc(n, sizeof *s.mine),
				 .members = calloc(n, sizeof *s.members) };
	int rc = -1;
	if (!s.all || !s.cards || !s.mine || !s.members) {
		err_set(e, ERR_NOMEM, "no memory to split %d ranks", c->size);
		goto free_all;
	}
	if (gather_choices(c, &s, color, key, e) == 0) {
		c->splits++;
		rc = exchange_cards_and_split(c, &s, color, name, out, e);
	}
free_all:
	free(s.all);
	free(s.cards);
	free(s.mine);
	free(s.members);
	return rc;
}

int comm_split(struct comm *c, int color, int key, const char *name, struct comm **out,
	       struct err *e)
{
	struct err why = ERR_INIT;
	if (split_group(c, color, key, name, out, &why) == 0)
		return 0;
	err_prefix(&why, "split of group %s into %s", c->name, name);
	if (why.code != ERR_USAGE)
		comm_world_fail(c->world, &why); /* the other ranks wait for this one */
	return err_set(e, why.code, "%s", why.text);
}
