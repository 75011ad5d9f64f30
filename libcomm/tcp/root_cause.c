#include "libcomm/tcp/root_cause.h"

#include "base/clock.h"
#include "libcomm/tcp/oob.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

enum { HOPS_MAX = 64 };

static const double LONGEST_S = 0.5;

/* Called under the world's lock. Sleeps until the state of a rank changes; returns false when the
 * time is over. */
static bool wait_for_news(struct world *w, int64_t until)
{
	struct timespec t = { until / 1000000000, until % 1000000000 };
	return pthread_cond_timedwait(&w->peers_changed, &w->lock, &t) != ETIMEDOUT;
}

static bool is_decided(const struct world *w)
{
	return world_failed(w) || atomic_load(&w->cause_known);
}

enum answer { ANSWER_NONE, ANSWER_GONE, ANSWER_HERE, ANSWER_WAITS };

/* Called under the world's lock. Asks one rank. Returns ANSWER_NONE also if the cause has become
 * known. */
static enum answer ask_rank(struct comm *c, int rank, int64_t until, int *waits_for)
{
	struct world *w = c->world;
	struct oob_peer *p = &w->oob_peers[rank];
	if (!w->peers[rank].address)
		return ANSWER_NONE; /* the hosts have not met yet: it can be named, not asked */
	uint32_t turn = comm_oob_ask(w, rank, c->id);
	for (bool time = true; !is_decided(w); time = wait_for_news(w, until)) {
		if (p->state == OOB_GONE)
			return ANSWER_GONE;
		if ((int32_t)(p->answered - turn) >= 0) {
			*waits_for = p->waits_for;
			return p->waits_for >= 0 ? ANSWER_WAITS : ANSWER_HERE;
		}
		if (!time)
			break;
	}
	return ANSWER_NONE;
}

static const char *format_rank(const struct comm *c, int world_rank, char out[160])
{
	for (int r = 0; r < c->size; r++)
		if (c->members[r] == world_rank)
			return comm_group_rank_text(c, r, out);
	snprintf(out, 160, "world rank %d, host %.80s, of another group", world_rank,
		 world_host(c->world, world_rank));
	return out;
}

/* Called under the world's lock. Returns the rank at the end of the chain of waits that begins with
 * the accused rank. */
static int follow_waits(struct comm *c, int64_t until, enum answer *last)
{
	int who = c->wait.accused, next = -1;
	for (int hop = 0; hop < HOPS_MAX; hop++) {
		*last = ask_rank(c, who, until, &next);
		/* If ranks wait for each other, none of them is more responsible than another. */
		if (*last != ANSWER_WAITS || next == c->world->rank || next == who)
			break;
		who = next;
	}
	return who;
}

void comm_root_cause_find(struct comm *c, struct err *why)
{
	struct world *w = c->world;
	if (!w->oob_peers || c->wait.accused < 0 || world_failed(w))
		return;
	double patience = w->timeout_s > 0 && w->timeout_s / 4 < LONGEST_S ? w->timeout_s / 4
									   : LONGEST_S;
	int64_t until = clock_ns() + (int64_t)(patience * 1e9);
	enum answer last = ANSWER_NONE;
	int unused, who = c->wait.accused;
	pthread_mutex_lock(&w->lock);
	if (why->code == ERR_TIMEOUT)
		who = follow_waits(c, until, &last);
	else
		last = ask_rank(c, who, until, &unused);
	bool left = w->oob_peers[who].left, met = w->oob_peers[who].met;
	pthread_mutex_unlock(&w->lock);
	char blamed[160], between[160];
	if (world_check_failed(w))
		return;
	if (who != c->wait.accused)
		err_set(why, why->code,
			"%s did not join within %g s; %s waits for it, or for a rank that does",
			format_rank(c, who, blamed), w->timeout_s,
			format_rank(c, c->wait.accused, between));
	if (last == ANSWER_GONE && left)
		err_set(why, ERR_PEER, "%s has closed the world", format_rank(c, who, blamed));
	else if (last == ANSWER_GONE && met && !atomic_load(&w->oob_peers[who].silent))
		err_set(why, ERR_PEER, "%s has died", format_rank(c, who, blamed));
}
