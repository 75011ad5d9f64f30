/* hello: which agents join a generation, and what each of them is told of it. */
#include "launcher/supervise/supervisor.h"
#include "topo/bind.h"

#include <stdio.h>
#include <string.h>

void supervise_refuse(struct supervisor *s, struct connection *c, const char *why)
{
	supervise_report_refused(s, why);
	launcher_connection_drop(c);
}

int supervise_send_welcome(struct supervisor *s, struct connection *c, int rank, const char *host,
			   struct err *e)
{
	const struct plan_rank *r = &s->d->plan.ranks[rank];
	const struct node_kind *k = topo_cluster_kind(&s->d->cluster, r->node);
	const struct msg_coords at = {
		.tp = r->at.tp, .cp = r->at.cp, .dp = r->at.dp, .pp = r->at.pp
	};
	char cpus[TOPO_CPUS] = "";
	if (s->d->job.launch.bind != BIND_NONE)
		topo_bind_near(k, r->slot, cpus, sizeof cpus);
	struct msg_welcome w = {
		.generation = s->generation,
		.rank = rank,
		.world = s->world,
		.pmix = s->by_pmix,
		.warm = s->d->job.restart.warm,
		.job = s->d->job_text,
		.threads = r->threads,
		.run = rundir_path(s->o.run),
		.resume = supervise_resume(s),
		.coords = msg_coords_json(&at),
		.node = supervise_node(s, rank),
		.node_index = r->node,
		.leaf = s->d->cluster.switches ? s->d->cluster.nodes[r->node].leaf : -1,
		.copies = !s->regroup.distrust,
		.heartbeat_s = supervise_heartbeat(&s->o.limits, s->world),
		.silent_s = s->o.limits.silent,
		.group_secret = s->group_secret,
		.device = r->slot,
		.bus = k->parts ? k->parts[r->slot].bus : "",
		.memory = r->total,
		.node_ranks = r->node_ranks,
		.cpus = cpus,
		.numa = *cpus ? k->parts[r->slot].numa : -1,
		.watches_node = supervise_evidence_watches(s, rank),
		.predecessors = supervise_predecessors_list(s->predecessors, s->generation, host),
	};
	w.has_predecessors = w.predecessors;
	w.program = s->program.ranks ? supervise_program_place(s, rank) : NULL;
	w.has_program = w.program;
	w.skips = s->rollback.list;
	w.has_skips = json_array_size(w.skips);
	bool told = !supervise_wiring_tell(&s->wiring, &s->d->plan, rank, &w, e);
	json_t *body = told && w.coords ? msg_welcome_json(&w) : NULL;
	json_decref(w.coords);
	json_decref(w.predecessors);
	json_decref(w.program);
	json_decref(w.here);
	json_decref(w.near);
	int rc = body ? launcher_connection_send(c, MSG_WELCOME, body, e)
		      : err_set(e, ERR_NOMEM, "no memory for the welcome of rank %d", rank);
	json_decref(body);
	return rc;
}

/* The reason why an agent with this hello must not join; NULL: it may. */
static const char *find_refusal(const struct supervisor *s, const struct msg_hello *h,
				int malformed, const struct err *e)
{
	if (h->version != MSG_VERSION)
		return "an agent of another version of muster";
	if (malformed)
		return e->text;
	if (h->world != s->world || h->rank < 0 || h->rank >= s->world || h->pid < 1)
		return "a hello for a rank that the plan does not have";
	if (s->ranks[h->rank].hello)
		return "a second hello for a rank that is already connected";
	return NULL;
}

/* The rank is this agent's from now on. */
static void claim_rank(struct supervisor *s, struct connection *c, const struct msg_hello *h)
{
	struct rank_state *k = &s->ranks[h->rank];
	launcher_connection_claim(c, h->rank);
	*k = (struct rank_state){
		.connection = c,
		.hello = true,
		.beat = supervise_now(s),
		.moved = supervise_now(s),
		.step = -1,
		.exited = k->exited,
		.process = k->process,
		.id = { .pid = h->pid, .start = h->start, .pid_space = h->pid_space }
	};
	snprintf(k->id.boot, sizeof k->id.boot, "%s", h->boot);
	snprintf(k->host, sizeof k->host, "%s", h->node);
	supervise_predecessors_add(s->predecessors, s->generation, h);
	s->hellos++;
	uint32_t generation = s->generation;
	supervise_hellos_add(s, h->rank);
	if (s->generation == generation && !s->lost && s->hellos == s->world)
		supervise_handle(s, EV_ALL_CONNECTED, NULL, NULL);
}

void supervise_hello(struct supervisor *s, struct connection *c, const json_t *body)
{
	struct msg_hello h;
	struct err e = ERR_INIT;
	const char *why = find_refusal(s, &h, msg_hello_read(body, &h, &e), &e);
	if (why)
		supervise_refuse(s, c, why);
	else
		claim_rank(s, c, &h);
}
