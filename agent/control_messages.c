/* control_messages: what the agent does with each message of the supervisor. */
#include "agent/control_inner.h"

#include <stdio.h>
#include <string.h>

/* Ends what the trainer waits for. The lock is held. */
static void end_generation(struct control *c, const char *reason)
{
	snprintf(c->reason, sizeof c->reason, "%s", reason);
	if (c->on_abort)
		c->on_abort(c->reason, c->on_abort_arg);
	pthread_cond_broadcast(&c->news);
}

void agent_control_start_leaving(struct control *c, const char *reason)
{
	pthread_mutex_lock(&c->lock);
	if (!c->leaving) {
		c->leaving = true;
		end_generation(c, reason);
	}
	pthread_mutex_unlock(&c->lock);
}

static int handle_dump(struct control *c, const struct msg *m, struct err *e)
{
	struct err why = ERR_INIT;
	(void)m;
	(void)e;
	pthread_mutex_lock(&c->lock);
	int rc = c->on_dump ? c->on_dump(c->on_dump_arg, &why) : 0;
	pthread_mutex_unlock(&c->lock);
	if (rc != DUMP_LATER)
		agent_control_send(c, MSG_DUMPED,
				   msg_dumped_json(&(struct msg_dumped){ .has_error = rc != 0,
									 .error = why.text }));
	return 0;
}

static int handle_collect(struct control *c, const struct msg *m, struct err *e)
{
	struct msg_collect collect;
	if (msg_collect_read(m->body, &collect, e))
		return -1;
	pthread_mutex_lock(&c->lock);
	bool taken = c->on_collect;
	if (taken)
		c->on_collect(collect.rank, collect.node, c->on_collect_arg);
	pthread_mutex_unlock(&c->lock);
	if (!taken)
		agent_control_send(c, MSG_COLLECTED,
				   msg_collected_json(&(struct msg_collected){
					   .rank = collect.rank,
					   .node = collect.node,
					   .has_error = true,
					   .error = "the agent has not opened a log, or has closed "
						    "it; ask again" }));
	return 0;
}

static int handle_examine(struct control *c, const struct msg *m, struct err *e)
{
	return agent_examine_start(&c->examinations, m->body, e);
}

static int handle_stop(struct control *c, const struct msg *m, struct err *e)
{
	struct msg_stop stop;
	if (msg_stop_read(m->body, &stop, e))
		return -1;
	if (atomic_load(&c->stop) == STOP_NONE) { /* the trainer reads them later */
		snprintf(c->stop_reason, sizeof c->stop_reason, "%s", stop.reason);
		c->stop_at = stop.has_at_step ? stop.at_step : 0;
		c->stop_reach_s = stop.has_reach_s ? stop.reach_s : 0;
	}
	atomic_store(&c->stop, stop.checkpoint ? STOP_CHECKPOINT : STOP_NOW);
	return 0;
}

static int handle_save(struct control *c, const struct msg *m, struct err *e)
{
	struct msg_save save;
	if (msg_save_read(m->body, &save, e))
		return -1;
	if (save.number > atomic_load(&c->save)) /* only this thread sets it */
		atomic_store(&c->save, save.number);
	return 0;
}

static int handle_trace(struct control *c, const struct msg *m, struct err *e)
{
	struct msg_trace trace;
	if (msg_trace_read(m->body, &trace, e))
		return -1;
	if (trace.number < 1 || trace.steps < 1 || trace.steps > TRACE_STEPS_MOST)
		return err_set(e, ERR_PROTO, "message trace: %d steps, number %d", trace.steps,
			       trace.number);
	long long word = (long long)trace.number << 32 | trace.steps;
	if (word > atomic_load(&c->trace)) /* only this thread sets it */
		atomic_store(&c->trace, word);
	return 0;
}

static int handle_recorded(struct control *c, const struct msg *m, struct err *e)
{
	struct msg_recorded recorded;
	if (msg_recorded_read(m->body, &recorded, e))
		return -1;
	pthread_mutex_lock(&c->lock);
	if (recorded.step > c->recorded)
		c->recorded = recorded.step;
	pthread_cond_broadcast(&c->news);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static int handle_abort(struct control *c, const struct msg *m, struct err *e)
{
	(void)c;
	struct msg_abort abort;
	if (msg_abort_read(m->body, &abort, e))
		return -1;
	return err_set(e, ERR_ABORTED, "the supervisor ended this generation: %s", abort.reason);
}

/* The generation is over, but not this process: what the trainer waits for is aborted. A rank that has
 * finished leaves by itself. */
static int handle_regroup(struct control *c, const struct msg *m, struct err *e)
{
	struct msg_regroup regroup;
	if (msg_regroup_read(m->body, &regroup, e))
		return -1;
	if (atomic_load(&c->finished))
		return 0;
	pthread_mutex_lock(&c->lock);
	if (!c->leaving && !c->regroups) {
		c->regroups = c->given_up = true;
		end_generation(c, regroup.reason);
	}
	pthread_mutex_unlock(&c->lock);
	return 0;
}

/* The next generation begins: this process is as a new one. From this message on, all others are of that
 * generation; they may come before the trainer has seen it. The lock is held. */
static void begin_next(struct control *c, json_t *welcome, uint32_t generation)
{
	c->next = json_incref(welcome);
	c->regroups = c->idle = c->given_up = false;
	c->recorded = 0;
	json_array_clear(c->endpoints);
	agent_connection_renew(c->connection, generation);
	agent_times_end(&c->times);
	atomic_store(&c->stop, STOP_NONE);
	atomic_store(&c->save, 0);
	atomic_store(&c->trace, 0);
	atomic_store(&c->step, 0);
	atomic_store(&c->phase, "start");
	pthread_cond_broadcast(&c->news);
}

static int handle_welcome(struct control *c, const struct msg *m, struct err *e)
{
	struct msg_welcome next;
	if (msg_welcome_read(m->body, &next, e))
		return -1;
	if (next.generation < 1 || next.generation > UINT32_MAX)
		return err_set(e, ERR_PROTO, "message welcome: generation %lld",
			       (long long)next.generation);
	if (agent_control_begin_reports(c, &next, e))
		return -1;
	pthread_mutex_lock(&c->lock);
	bool awaited = c->idle;
	if (awaited)
		begin_next(c, m->body, (uint32_t)next.generation);
	pthread_mutex_unlock(&c->lock);
	return awaited ? 0
		       : err_set(e, ERR_PROTO,
				 "the supervisor sent a welcome to an agent that still trains");
}

static int handle_world_endpoints(struct control *c, const struct msg *m, struct err *e)
{
	struct msg_world_endpoints part;
	if (msg_world_endpoints_read(m->body, &part, e))
		return -1;
	pthread_mutex_lock(&c->lock);
	bool next = part.first >= 0 && (size_t)part.first == json_array_size(c->endpoints);
	bool added = next && !json_array_extend(c->endpoints, part.values);
	pthread_cond_broadcast(&c->news);
	pthread_mutex_unlock(&c->lock);
	if (!next)
		return err_set(e, ERR_PROTO,
			       "message world_endpoints: first is %d, which does not follow",
			       part.first);
	return added ? 0 : err_set(e, ERR_NOMEM, "no memory for the endpoints of other ranks");
}

/* The messages that the supervisor sends to an agent after its welcome. */
static int (*const handlers[MSG_COUNT])(struct control *c, const struct msg *m, struct err *e) = {
	[MSG_STOP] = handle_stop,       [MSG_ABORT] = handle_abort,
	[MSG_DUMP] = handle_dump,       [MSG_RECORDED] = handle_recorded,
	[MSG_EXAMINE] = handle_examine, [MSG_REGROUP] = handle_regroup,
	[MSG_WELCOME] = handle_welcome, [MSG_WORLD_ENDPOINTS] = handle_world_endpoints,
	[MSG_SAVE] = handle_save,       [MSG_TRACE] = handle_trace,
	[MSG_COLLECT] = handle_collect,
};

/* The lock is held. */
static void note_contact(struct control *c)
{
	double contact = agent_connection_heard(c->connection);
	if (contact > c->contact) {
		c->contact = contact;
		pthread_cond_broadcast(&c->news);
	}
}

int agent_control_exchange_messages(struct control *c, struct err *e)
{
	for (struct msg m;;) {
		pthread_mutex_lock(&c->lock);
		int rc = agent_connection_receive(c->connection, &m, e);
		note_contact(c);
		pthread_mutex_unlock(&c->lock);
		if (rc <= 0)
			return rc;
		rc = handlers[m.type] ? handlers[m.type](c, &m, e)
				      : err_set(e, ERR_PROTO,
						"the supervisor sent the message %s, which only "
						"agents send",
						msg_word(m.type));
		msg_fini(&m);
		if (rc)
			return -1;
	}
}
