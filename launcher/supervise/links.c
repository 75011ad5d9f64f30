#include "launcher/supervise/links.h"

#include "base/human.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void supervise_links_close(struct supervisor *s)
{
	free(s->links.links);
	s->links = (struct links_state){ .begun = 0 };
}

/* Without memory nothing is compared. */
void supervise_links_reset(struct supervisor *s)
{
	supervise_links_close(s);
	s->links.links = calloc((size_t)s->world * LINKS_MOST, sizeof *s->links.links);
	s->links.world = s->links.links ? s->world : 0;
}

/* --- Messages ----------------------------------------------------------------------- */

static int check_link(const struct supervisor *s, const json_t *o, struct msg_link *m,
		      struct err *e)
{
	if (msg_link_read(o, m, e))
		return -1;
	if (m->peer < 0 || m->peer >= s->world || !(m->share >= 0 && m->share <= 1) ||
	    !(m->rate > 0 && isfinite(m->rate)) || !(m->resent >= 0 && isfinite(m->resent)) ||
	    strlen(m->group) >= sizeof((struct link_state *)0)->group)
		return err_set(e, ERR_PROTO, "message links: a value is out of its range");
	return 0;
}

static bool is_link(const struct link_state *l, const struct msg_link *m)
{
	return *l->group && l->peer == m->peer && !strcmp(l->group, m->group);
}

/* The state of this link of the rank; otherwise an unused one, or that of a link which the rank's
 * last message has not named. */
static struct link_state *find_link(struct link_state *own, const struct msg_link *m)
{
	struct link_state *unused = NULL;
	for (int i = 0; i < LINKS_MOST; i++) {
		if (is_link(&own[i], m))
			return &own[i];
		if (!own[i].known && (!unused || (*unused->group && !*own[i].group)))
			unused = &own[i];
	}
	return unused;
}

int supervise_links_note(struct supervisor *s, int rank, const struct msg_links *m, struct err *e)
{
	struct link_state *own = rank < s->links.world ? &s->links.links[(size_t)rank * LINKS_MOST]
						       : NULL;
	struct msg_link x;
	if (!json_is_array(m->links) || json_array_size(m->links) > LINKS_MOST)
		return err_set(e, ERR_PROTO, "message links: not a list of at most %d links",
			       LINKS_MOST);
	for (size_t i = 0; i < json_array_size(m->links); i++)
		if (check_link(s, json_array_get(m->links, i), &x, e))
			return -1;
	for (int i = 0; own && i < LINKS_MOST; i++)
		own[i].known = false;
	for (size_t i = 0; own && i < json_array_size(m->links); i++) {
		msg_link_read(json_array_get(m->links, i), &x, NULL);
		struct link_state *l = find_link(own, &x); /* there are as many as links */
		if (!is_link(l, &x))
			*l = (struct link_state){ .rank = rank, .peer = x.peer };
		snprintf(l->group, sizeof l->group, "%s", x.group);
		l->share = x.share;
		l->rate = x.rate;
		l->resent = x.resent;
		l->known = true;
	}
	return 0;
}

/* --- Comparison --------------------------------------------------------------------- */

static bool is_on_one_node(const struct supervisor *s, const struct link_state *l)
{
	return s->d->plan.ranks[l->rank].node == s->d->plan.ranks[l->peer].node;
}

struct compared {
	struct link_state *link;
	bool near; /* both ends are on one node */
};

static int compare_links(const void *a, const void *b)
{
	const struct compared *x = a, *y = b;
	int c = strcmp(x->link->group, y->link->group);
	if (c || x->near != y->near)
		return c ? c : x->near - y->near;
	return (x->link->rate > y->link->rate) - (x->link->rate < y->link->rate);
}

/* The lower median of the rates of [first, end) without number i; the links are sorted. */
static double median_of_others(const struct compared *list, int first, int end, int i)
{
	int others = end - first - 1, at = first + (others - 1) / 2;
	return others < 1 ? 0 : list[at < i ? at : at + 1].link->rate;
}

/* Acknowledgements take the other way, so a link is often slow both ways. One line is enough. */
static bool is_other_way_reported(const struct supervisor *s, const struct link_state *l)
{
	const struct link_state *back = &s->links.links[(size_t)l->peer * LINKS_MOST];
	for (int i = 0; i < LINKS_MOST; i++)
		if (back[i].reported && back[i].peer == l->rank && !strcmp(back[i].group, l->group))
			return true;
	return false;
}

static void report(struct supervisor *s, const struct link_state *l)
{
	char rate[HUMAN], usual[HUMAN], text[500];
	human_count(l->rate, "B/s", rate);
	human_count(l->reference, "B/s", usual);
	if (l->reported)
		snprintf(text, sizeof text,
			 "the link from rank %d on %s to rank %d on %s (group %s) is slow: %s, the "
			 "others' median is %s; it was busy for %.0f %% of the time, and sent %.2g "
			 "%% of its segments again: test the adapters of both nodes, the cables "
			 "and the switch between them",
			 l->rank, supervise_node(s, l->rank), l->peer, supervise_node(s, l->peer),
			 l->group, rate, usual, 100 * l->share, 100 * l->resent);
	else
		snprintf(text, sizeof text,
			 "the link from rank %d on %s to rank %d on %s (group %s) is as fast as "
			 "the others again",
			 l->rank, supervise_node(s, l->rank), l->peer, supervise_node(s, l->peer),
			 l->group);
	rundir_event_slow_link(s->o.run, s->generation,
			       &(struct rundir_slow_link){ .rank = l->rank,
							   .node = supervise_node(s, l->rank),
							   .peer = l->peer,
							   .peer_node = supervise_node(s, l->peer),
							   .group = l->group,
							   .slow = l->reported,
							   .rate = l->rate,
							   .usual = l->reference,
							   .share = l->share,
							   .resent = l->resent,
							   .text = text });
	if (!is_other_way_reported(s, l))
		supervise_terminal_event(s->o.term, l->reported ? TONE_WARN : TONE_GOOD, "slow",
					 "%s", text);
}

static void judge(struct supervisor *s, struct link_state *l)
{
	bool slow = l->share >= LINK_BUSY && l->rate * LINK_FACTOR < l->reference;
	l->slow = slow ? l->slow + 1 : 0;
	l->fast = slow ? 0 : l->fast + 1;
	if (l->reported ? l->fast < LINK_WINDOWS : l->slow < LINK_WINDOWS)
		return;
	l->reported = slow;
	report(s, l);
}

static void compare_all(struct supervisor *s)
{
	size_t most = (size_t)s->links.world * LINKS_MOST;
	struct compared *list = malloc(most * sizeof *list);
	int n = 0;
	for (size_t i = 0; list && i < most; i++)
		if (s->links.links[i].known)
			list[n++] = (struct compared){ &s->links.links[i],
						       is_on_one_node(s, &s->links.links[i]) };
	if (n)
		qsort(list, (size_t)n, sizeof *list, compare_links);
	for (int first = 0, end; first < n; first = end) {
		for (end = first + 1; end < n && list[end].near == list[first].near &&
				      !strcmp(list[end].link->group, list[first].link->group);)
			end++;
		for (int i = first; i < end; i++)
			list[i].link->reference = median_of_others(list, first, end, i);
	}
	for (int i = 0; i < n; i++)
		judge(s, list[i].link);
	free(list);
}

void supervise_links_tick(struct supervisor *s)
{
	struct links_state *k = &s->links;
	double now = supervise_now(s);
	if (!k->links || k->world != s->world || s->d->job.health.slow_factor <= 0)
		return;
	if (s->state != SUP_TRAINING || k->begun <= 0 || s->slept > k->begun) {
		k->begun = now;
	} else if (now - k->begun >= s->d->job.health.slow_window) {
		compare_all(s);
		k->begun = now;
	}
}
