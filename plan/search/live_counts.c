#include "plan/search/live_counts.h"

#include <stdlib.h>

enum { BUCKETS = 1 << 14 };

struct entry {
	struct entry *next;
	enum job_schedule kind;
	int pp, chunks, micros;
	struct live_chunk counts[];
};

struct live_counts {
	struct entry *buckets[BUCKETS];
};

struct live_counts *search_live_open(void)
{
	return calloc(1, sizeof(struct live_counts));
}

void search_live_close(struct live_counts *l)
{
	for (int i = 0; l && i < BUCKETS; i++)
		for (struct entry *e = l->buckets[i], *next; e; e = next) {
			next = e->next;
			free(e);
		}
	free(l);
}

static unsigned bucket_of(enum job_schedule kind, int pp, int chunks, int micros)
{
	unsigned h = (unsigned)kind;
	h = h * 2654435761u + (unsigned)pp;
	h = h * 2654435761u + (unsigned)chunks;
	h = h * 2654435761u + (unsigned)micros;
	return (h ^ h >> 15) % BUCKETS;
}

static void count_live(struct entry *e, const struct layout *layout)
{
	for (int r = 0; r < e->pp; r++) {
		struct sched_slots slots = { .most = e->chunks * e->micros };
		int sum = 0;
		if (schedule_kinds[e->kind]->enough_micros)
			schedule_slots(e->kind, layout, e->micros, r, &slots);
		for (int c = 0; c < e->chunks && !schedule_kinds[e->kind]->enough_micros; c++)
			slots.live[c] = slots.whole[c] = e->micros;
		for (int c = 0; c < e->chunks; c++)
			sum += slots.live[c];
		for (int c = 0; c < e->chunks; c++)
			e->counts[r * e->chunks + c] = (struct live_chunk){
				slots.live[c], slots.whole[c], (double)slots.most / sum
			};
	}
}

const struct live_chunk *search_live_of(struct live_counts *l, enum job_schedule kind,
					const struct layout *layout, int micros)
{
	int pp = layout->pp, chunks = layout->chunks;
	micros = schedule_enough_micros(kind, pp, micros);
	struct entry **at = &l->buckets[bucket_of(kind, pp, chunks, micros)], *e = *at;
	while (e && (e->kind != kind || e->pp != pp || e->chunks != chunks || e->micros != micros))
		e = e->next;
	if (e)
		return e->counts;
	e = malloc(sizeof *e + (size_t)pp * (size_t)chunks * sizeof *e->counts);
	if (!e)
		return NULL;
	*e = (struct entry){
		.next = *at, .kind = kind, .pp = pp, .chunks = chunks, .micros = micros
	};
	count_live(e, layout);
	*at = e;
	return e->counts;
}
