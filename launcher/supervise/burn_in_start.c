/* burn_in_start: what a burn-in consists of before its first order: its nodes, its listener, its
 * step. */
#include "base/run_paths.h"
#include "launcher/supervise/burn_in.h"
#include "launcher/supervise/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 4096, WORDS_MOST = 24 };

static const char *name_of(const struct burn_in *b, int i)
{
	return b->s->o.machines->nodes[b->nodes[i].number].name;
}

int supervise_burn_in_take_nodes(struct burn_in *b, struct err *e)
{
	const struct pool *p = &b->s->recovery.pool;
	size_t most = (size_t)p->machines->n_nodes + 1;
	b->nodes = calloc(most, sizeof *b->nodes);
	b->partners = calloc(most * BURN_IN_ROUNDS, sizeof *b->partners);
	if (!b->nodes || !b->partners ||
	    supervise_burn_in_table_init(&b->table, p->machines->n_nodes, NULL))
		return err_set(e, ERR_NOMEM, "no memory to measure the nodes");
	for (int i = 0; i < p->machines->n_nodes; i++)
		if (p->nodes[i].passed && supervise_pool_usable(p, i))
			b->nodes[b->n++] = (struct burn_in_node){ .number = i, .partner = -1 };
	b->rounds = supervise_burn_in_pairs(b->n, b->partners);
	return 0;
}

int supervise_burn_in_listen(struct burn_in *b, struct connections_options *co, struct err *e)
{
	char host[NET_ADDR_MAX];
	unsigned char secret[AUTH_SECRET_BYTES];
	const char *address = b->s->o.address, *colon = strrchr(address, ':');
	snprintf(host, sizeof host, "%.*s", (int)(colon ? colon - address : 0), address);
	if (net_listen(host, &co->listener, b->address, e) ||
	    launcher_connections_open(co, &b->connections, e))
		return err_prefix(e, "the listener of the burn-in");
	auth_secret_new(secret);
	auth_secret_hex(secret, b->secret);
	launcher_connections_renew(b->connections, secret, BURN_IN_GENERATION, b->began);
	explicit_bzero(secret, sizeof secret);
	return 0;
}

static void list_names(const struct burn_in *b, struct buf *out)
{
	for (int i = 0; i < b->n; i++)
		buf_printf(out, "%s%s", i ? "," : "", name_of(b, i));
}

/* Of the nodes that have the fewest. */
static void find_least(const struct burn_in *b, int *cpus, int *devices)
{
	for (int i = 0; i < b->n; i++) {
		const struct node_kind *k = topo_cluster_kind(b->s->o.machines, b->nodes[i].number);
		*cpus = !i || k->cores < *cpus ? k->cores : *cpus;
		*devices = !i || k->devices < *devices ? k->devices : *devices;
	}
}

static void choose_dir(const struct burn_in *b, char dir[WORD])
{
	const struct job *job = &b->s->d->job;
	if (*job->checkpoint.dir && !job_path_is_address(job->checkpoint.dir))
		snprintf(dir, WORD, "%s", job->checkpoint.dir);
	else
		snprintf(dir, WORD, "%s/" RUN_CKPT, rundir_path(b->s->o.run));
}

int supervise_burn_in_step(struct burn_in *b,
			   void (*ended)(void *arg, int status, const char *output), struct err *e)
{
	static const char *const dtypes[] = { "", ":bf16", ":fp16" };
	const struct job *job = &b->s->d->job;
	char dir[WORD], backend[32], sockets[16], count[16];
	int cpus = 0, devices = 0;
	bool cuda = job->job.device == DEVICE_CUDA;
	choose_dir(b, dir);
	find_least(b, &cpus, &devices);
	snprintf(count, sizeof count, "%d", cuda ? devices : 1);
	snprintf(backend, sizeof backend, "%s%s", cuda ? "cuda" : "cpu",
		 cuda ? dtypes[job->precision.dtype] : "");
	snprintf(sockets, sizeof sockets, "%d", (int)job->network.sockets);
	const char *words[WORDS_MOST] = {
		"--backend",     backend,
		"--devices",     count,
		"--dir",         dir,
		"--sockets",     sockets,
		"--transport",   *job->network.backend ? job->network.backend : "auto",
		"--interface",   job->network.interface,
		"--integrity",   *job->network.integrity ? job->network.integrity : "none",
		"--calibration", *job->launch.calibration ? job->launch.calibration : "auto",
	};
	struct buf names = BUF_INIT;
	list_names(b, &names);
	const struct burn_in_request r = { .nodes = buf_str(&names),
					   .n_nodes = b->n,
					   .cpus = cpus,
					   .agent = b->s->o.agent,
					   .words = (char *const *)(uintptr_t)words,
					   .address = b->address,
					   .secret = b->secret,
					   .auth = b->s->auth };
	int rc = buf_failed(&names) ? err_set(e, ERR_NOMEM, "no memory for the names of the nodes")
				    : b->s->o.ops->burn_in(b->s->o.loop, &r, ended, b, &b->step, e);
	buf_fini(&names);
	return rc;
}
