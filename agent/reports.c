#include "agent/reports.h"

void agent_reports_init(struct reports *r)
{
	*r = (struct reports){ .last = { 0 } };
	pthread_mutex_init(&r->lock, NULL);
}

void agent_reports_fini(struct reports *r)
{
	for (int i = 0; i < REPORTS_COUNT; i++)
		json_decref(r->waiting[i]);
	pthread_mutex_destroy(&r->lock);
}

/* What waits from now on; NULL: nothing. */
static void replace(struct reports *r, int report, json_t *body)
{
	json_decref(r->waiting[report]);
	r->waiting[report] = body;
	r->number[report] = r->last[report];
}

static void number(struct reports *r, int report, json_t *body)
{
	json_object_set_new(body, "number", json_integer(++r->last[report]));
}

void agent_reports_overtake(struct reports *r, int report, json_t *body)
{
	pthread_mutex_lock(&r->lock);
	number(r, report, body);
	replace(r, report, NULL);
	pthread_mutex_unlock(&r->lock);
}

void agent_reports_keep(struct reports *r, int report, json_t *body)
{
	pthread_mutex_lock(&r->lock);
	number(r, report, body);
	replace(r, report, body);
	pthread_mutex_unlock(&r->lock);
}

json_t *agent_reports_waiting(struct reports *r, int report, int64_t *number)
{
	pthread_mutex_lock(&r->lock);
	json_t *body = json_incref(r->waiting[report]);
	*number = r->number[report];
	pthread_mutex_unlock(&r->lock);
	return body;
}

void agent_reports_settle(struct reports *r, int report, int64_t number)
{
	pthread_mutex_lock(&r->lock);
	if (r->number[report] == number)
		replace(r, report, NULL);
	pthread_mutex_unlock(&r->lock);
}
