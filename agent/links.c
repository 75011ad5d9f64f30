#include "agent/links.h"

#include "base/messages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A message is sent again if a share has changed by this much, or a rate by this factor. */
#define SHARE_STEP  0.2
#define RATE_FACTOR 1.5

struct links {
	double began;
	struct comm_link *before; /* [n] */
	int n;
	struct msg_link sent[LINKS_SENT];
	char groups[LINKS_SENT][sizeof((struct comm_link *)0)->group];
	int n_sent;
};

struct links *links_open(double now)
{
	struct links *l = calloc(1, sizeof *l);
	if (l)
		l->began = now;
	return l;
}

void links_close(struct links *l)
{
	if (!l)
		return;
	free(l->before);
	free(l);
}

static const struct comm_link *find_before(const struct links *l, const struct comm_link *now)
{
	for (int i = 0; i < l->n; i++)
		if (l->before[i].peer == now->peer && !strcmp(l->before[i].group, now->group))
			return &l->before[i];
	return NULL;
}

static int compare_shares(const void *a, const void *b)
{
	double x = ((const struct msg_link *)a)->share, y = ((const struct msg_link *)b)->share;
	return (x < y) - (x > y);
}

/* The links that moved bytes in the window, the busiest first. */
static int measure(const struct links *l, double window, const struct comm_link *sums, int n,
		   struct msg_link *out)
{
	int found = 0;
	for (int i = 0; i < n; i++) {
		static const struct comm_link none;
		const struct comm_link *b = find_before(l, &sums[i]);
		b = b && b->bytes <= sums[i].bytes ? b : &none;
		double bytes = sums[i].bytes - b->bytes, busy = sums[i].busy_s - b->busy_s,
		       segments = sums[i].segments - b->segments;
		if (!(bytes > 0 && busy > 0))
			continue;
		out[found++] = (struct msg_link){
			.group = sums[i].group,
			.peer = sums[i].peer,
			.share = fmin(busy / window, 1),
			.rate = bytes / busy,
			.resent = segments > 0 ? (sums[i].resent - b->resent) / segments : 0,
		};
	}
	qsort(out, (size_t)found, sizeof *out, compare_shares);
	return found;
}

static bool has_changed(const struct links *l, const struct msg_link *m, int n)
{
	if (n != l->n_sent)
		return true;
	for (int i = 0; i < n; i++) {
		int k = 0;
		while (k < n && (l->sent[k].peer != m[i].peer || strcmp(l->groups[k], m[i].group)))
			k++;
		if (k == n || fabs(l->sent[k].share - m[i].share) > SHARE_STEP ||
		    fabs(log(l->sent[k].rate / m[i].rate)) > log(RATE_FACTOR))
			return true;
	}
	return false;
}

static json_t *note_sent(struct links *l, const struct msg_link *m, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++) {
		l->sent[i] = m[i];
		strcpy(l->groups[i], m[i].group);
		json_array_append_new(list, msg_link_json(&m[i]));
	}
	l->n_sent = n;
	return list;
}

json_t *links_judge(struct links *l, double now, const struct comm_link *sums, int n)
{
	struct msg_link *m = calloc((size_t)n + 1, sizeof *m);
	struct comm_link *copy = malloc(((size_t)n + 1) * sizeof *copy);
	json_t *list = NULL;
	if (m && copy) {
		int found = measure(l, now - l->began, sums, n, m);
		found = found < LINKS_SENT ? found : LINKS_SENT;
		if (has_changed(l, m, found))
			list = note_sent(l, m, found);
		memcpy(copy, sums, (size_t)n * sizeof *copy);
		free(l->before);
		l->before = copy;
		l->n = n;
		l->began = now;
		copy = NULL;
	}
	free(copy);
	free(m);
	return list;
}
