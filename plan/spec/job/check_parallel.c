/* Contradictions between the degrees, what they split, the schedule, ZeRO and the devices. */
#include "plan/spec/batch.h"
#include "plan/spec/job/rules.h"
#include "plan/spec/schedule/schedule.h"
#include "plan/spec/speeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD_MAX = 1000000 };

/* The smallest possible number of replicas. */
static int64_t replicas(const struct job *job)
{
	return job->parallel.dp ? job->parallel.dp : job->parallel.ep;
}

static int64_t world(const struct job *job)
{
	return job->parallel.tp * job->parallel.cp * job->parallel.pp * replicas(job);
}

static int check_world(const struct rule_job *j)
{
	static const size_t keys[] = { AT(parallel, dp), AT(parallel, pp), AT(parallel, cp),
				       AT(parallel, tp), AT(parallel, ep) };
	if (world(j->job) > WORLD_MAX)
		return REFUSE(
			j, keys,
			"tp × cp × pp × dp = %lld ranks; use degrees whose product is at most %d",
			(long long)world(j->job), WORLD_MAX);
	return 0;
}

static bool cuts_heads(const struct rule_job *j, int64_t tp)
{
	return tp <= j->shape.kv_heads || (tp % j->shape.kv_heads == 0 && j->shape.heads % tp == 0);
}

static int check_tp(const struct rule_job *j)
{
	static const size_t kv[] = { AT(parallel, tp), AT(model, kv_heads), AT(model, heads) };
	static const size_t ffn[] = { AT(parallel, tp), AT(model, ffn), AT(model, hidden) };
	static const size_t vocab[] = { AT(parallel, tp), AT(model, vocab) };
	const struct model_shape *m = &j->shape;
	long long tp = j->job->parallel.tp;
	if (tp > m->heads)
		return REFUSE(j, kv, "tp = %lld cannot split heads = %lld; use tp of at most %lld",
			      tp, (long long)m->heads, (long long)m->heads);
	if (!cuts_heads(j, tp))
		return REFUSE(j, kv,
			      "tp = %lld cannot split kv_heads = %lld of heads = %lld: beyond "
			      "kv_heads, it must be a multiple of them and divide heads; "
			      "use tp = %lld",
			      tp, (long long)m->kv_heads, (long long)m->heads,
			      (long long)job_rule_nearest(j, tp, 1, m->heads, cuts_heads));
	if (m->ffn < tp)
		return REFUSE(j, ffn, "tp = %lld cannot split ffn = %lld; use tp of at most %lld",
			      tp, (long long)m->ffn, (long long)m->ffn);
	if (m->vocab < tp)
		return REFUSE(j, vocab,
			      "tp = %lld cannot split vocab = %lld; use tp of at most %lld", tp,
			      (long long)m->vocab, (long long)m->vocab);
	return 0;
}

/* Each rank of context parallelism has two pieces of a sequence, one from each end (zig-zag). */
static bool cuts_seq(const struct rule_job *j, int64_t cp)
{
	return cp == 1 || j->job->model.seq % (2 * cp) == 0;
}

static int check_cp(const struct rule_job *j)
{
	static const size_t keys[] = { AT(parallel, cp), AT(model, seq) };
	long long cp = j->job->parallel.cp, seq = j->job->model.seq;
	if (!cuts_seq(j, cp))
		return REFUSE(
			j, keys,
			"cp = %lld splits a sequence into %lld pieces, which seq = %lld is not a "
			"multiple of; use cp = %lld or seq = %lld",
			cp, 2 * cp, seq, (long long)job_rule_nearest(j, cp, 1, cp, cuts_seq),
			(seq + 2 * cp - 1) / (2 * cp) * 2 * cp);
	return 0;
}

static bool cuts_rows(const struct rule_job *j, int64_t micro)
{
	return micro * (j->job->model.seq / j->job->parallel.cp) % j->job->parallel.tp == 0;
}

static int check_sp(const struct rule_job *j)
{
	static const size_t keys[] = { AT(parallel, sp), AT(parallel, tp), AT(parallel, cp),
				       AT(batch, micro), AT(model, seq) };
	const struct job *job = j->job;
	if (job->parallel.sp && !cuts_rows(j, job->batch.micro))
		return REFUSE(j, keys,
			      "sp = yes splits the %lld tokens of micro × seq / cp over tp = %lld, "
			      "which does not divide them; use micro = %lld",
			      (long long)(job->batch.micro * (job->model.seq / job->parallel.cp)),
			      (long long)job->parallel.tp,
			      (long long)job_rule_nearest(j, job->batch.micro, 1,
							  job->batch.micro + job->parallel.tp,
							  cuts_rows));
	return 0;
}

static bool divides_dp(const struct rule_job *j, int64_t ep)
{
	return j->job->parallel.dp % ep == 0 &&
	       (job_has_program(j->job) || ep <= j->job->model.experts);
}

static int check_experts(const struct rule_job *j)
{
	static const size_t experts[] = { AT(parallel, ep), AT(model, experts) };
	const struct job *job = j->job;
	if (j->shape.experts && job->parallel.ep > job->model.experts)
		return REFUSE(j, experts,
			      "ep = %lld ranks cannot split experts = %lld; use ep of at most %lld",
			      (long long)job->parallel.ep, (long long)job->model.experts,
			      (long long)job->model.experts);
	return 0;
}

static int check_ep(const struct rule_job *j)
{
	static const size_t dp[] = { AT(parallel, ep), AT(parallel, dp) };
	const struct job *job = j->job;
	if (job->parallel.dp % job->parallel.ep)
		return REFUSE(j, dp, "ep = %lld does not divide dp = %lld; use ep = %lld",
			      (long long)job->parallel.ep, (long long)job->parallel.dp,
			      (long long)job_rule_nearest(j, job->parallel.ep, 1, job->parallel.dp,
							  divides_dp));
	return 0;
}

static int check_schedule(const struct rule_job *j)
{
	static const size_t chunks[] = { AT(parallel, chunks), AT(parallel, schedule) };
	static const size_t pp[] = { AT(parallel, schedule), AT(parallel, pp) };
	const struct job *job = j->job;
	const struct schedule_kind *kind = schedule_kinds[job->parallel.schedule];
	const char *word = schedule_words[job->parallel.schedule];
	if (kind->chunks_most > 1 && job->parallel.chunks &&
	    (job->parallel.chunks < kind->chunks_least || job->parallel.chunks > kind->chunks_most))
		return REFUSE(j, chunks,
			      "chunks = %lld does not work with schedule = %s; use chunks = %d",
			      (long long)job->parallel.chunks, word, kind->chunks_least);
	if (kind->loops && job->parallel.pp < 2)
		return REFUSE(j, pp,
			      "schedule = %s needs several pipeline ranks, and pp = 1; use pp = 2 "
			      "or more, or schedule = %s",
			      word, schedule_words[SCHEDULE_1F1B]);
	return 0;
}

static int refuse_depth(const struct rule_job *j, const struct layout *l)
{
	static const size_t deep[] = { AT(parallel, pp), AT(parallel, chunks),
				       AT(parallel, schedule), AT(model, layers) };
	long long layers = j->job->model.layers, pp = j->job->parallel.pp;
	bool bare = layout_bare_ends(j->job);
	const char *which = bare ? "but the first and the last" : "of muster's engine";
	long long most = layout_stages_most(layers, bare) / l->chunks;
	if (l->chunks == 1)
		return REFUSE(j, deep,
			      "pp = %lld needs a layer for each stage %s and layers = %lld; use pp "
			      "of at most %lld",
			      pp, which, layers, most);
	return REFUSE(j, deep,
		      "pp = %lld with %d chunks per rank needs a layer for each of %d stages %s "
		      "and layers = %lld; use pp of at most %lld",
		      pp, l->chunks, layout_n_stages(l), which, layers, most);
}

static int check_stages(const struct rule_job *j)
{
	static const size_t list[] = { AT(parallel, stages), AT(parallel, pp), AT(parallel, chunks),
				       AT(model, layers) };
	const struct job *job = j->job;
	struct layout l = layout_of(job, 1);
	struct err why = ERR_INIT;
	if (layout_n_stages(&l) > layout_stages_most(job->model.layers, layout_bare_ends(job)))
		return refuse_depth(j, &l);
	if (!*job->parallel.stages)
		return 0;
	struct stage *stages = calloc((size_t)layout_n_stages(&l), sizeof *stages);
	int rc = stages ? 0
			: err_set(j->err, ERR_NOMEM,
				  "no memory for %d stages; close other programs",
				  layout_n_stages(&l));
	if (stages && layout_stages(&j->shape, layout_n_stages(&l), job->parallel.stages,
				    layout_bare_ends(job), NULL, stages, &why))
		rc = REFUSE(j, list, "%s", why.text);
	free(stages);
	return rc;
}

static int check_list(const struct rule_job *j, const char *text, double least, double most,
		      bool whole, size_t offset, const char *what)
{
	const size_t keys[] = { offset, AT(parallel, dp), AT(parallel, pp), AT(parallel, cp),
				AT(parallel, tp) };
	const char *name = job_keys[job_key_at(offset)].name, *bad = "";
	struct speeds_list list;
	int n = speeds_read(text, least, most, whole, &list, &bad);
	bool one = whole && n == 1; /* one number for all agents */
	if (n < 0)
		return REFUSE(j, keys,
			      "%s = %s: \"%s\" does not begin with %s from %g to %g; write one a "
			      "rank with commas between, such as 2,1, or counts of equal ones, "
			      "such as 2*8,1*24",
			      name, text, bad, what, least, most);
	if (n > 0 && !one && j->job->parallel.dp && n != world(j->job))
		return REFUSE(
			j, keys,
			"%s = %s names %d devices, and tp × cp × pp × dp = %lld; name as many",
			name, text, n, (long long)world(j->job));
	return 0;
}

static int check_lists(const struct rule_job *j)
{
	const struct job *job = j->job;
	bool zero = !strcmp(job->launch.threads, "0");
	if (check_list(j, job->launch.speeds, 1e-3, 1e3, false, AT(launch, speeds), "a number") ||
	    (!zero && check_list(j, job->launch.threads, 1, 4096, true, AT(launch, threads),
				 "a whole number")))
		return -1;
	return 0;
}

/* Checks ZeRO 2 and 3 with unequal shares of the batch. If the number of replicas is not set,
 * plan.c checks it. */
static int check_shares(const struct rule_job *j)
{
	static const size_t keys[] = { AT(launch, speeds), AT(launch, threads), AT(parallel, zero),
				       AT(batch, global),  AT(batch, micro),    AT(parallel, dp) };
	const struct job *job = j->job;
	if (!speeds_devices(job) || !job->parallel.dp)
		return 0;
	struct layout l = layout_of(job, (int)job->parallel.dp);
	struct stage *stages = calloc((size_t)layout_n_stages(&l), sizeof *stages);
	struct batch_share *shares = calloc((size_t)l.dp, sizeof *shares);
	struct err why = ERR_INIT;
	int rc = 0;
	if (!stages || !shares)
		rc = err_set(j->err, ERR_NOMEM,
			     "no memory to share the batch over %d replicas; close other programs",
			     l.dp);
	else if (speeds_stages(job, &j->shape, &l, stages, &why) ||
		 batch_split(job, &j->shape, &l, stages, shares, &why))
		rc = REFUSE(j, keys, "%s", why.text);
	free(shares);
	free(stages);
	return rc;
}

static int check_launch(const struct rule_job *j)
{
	static const size_t local[] = { AT(launch, devices), AT(parallel, tp), AT(parallel, cp),
					AT(parallel, pp), AT(parallel, dp) };
	static const size_t slurm[] = { AT(slurm, gpus_per_node), AT(slurm, nodes),
					AT(parallel, tp),         AT(parallel, cp),
					AT(parallel, pp),         AT(parallel, dp) };
	const struct job *job = j->job;
	int64_t gpus = job->slurm.nodes.max * job->slurm.gpus_per_node;
	if (job->launch.launcher == LAUNCHER_LOCAL && job->launch.devices &&
	    job->launch.devices < world(job))
		return REFUSE(j, local,
			      "devices = %lld cannot hold the %lld ranks of tp × cp × pp × dp; "
			      "raise devices or lower a degree",
			      (long long)job->launch.devices, (long long)world(job));
	if (job->launch.launcher == LAUNCHER_SLURM && gpus && gpus < world(job))
		return REFUSE(j, slurm,
			      "nodes × gpus_per_node = %lld cannot hold the %lld ranks of tp × cp "
			      "× pp × dp; request more or lower a degree",
			      (long long)gpus, (long long)world(job));
	return 0;
}

/* Writes the range of nodes that begins where n ranks fit. */
static const char *range_for(const struct job *job, int64_t n, char out[48])
{
	int64_t min = (n + job->slurm.gpus_per_node - 1) / job->slurm.gpus_per_node;
	int used = snprintf(out, 48, "%lld", (long long)min);
	if (job->slurm.nodes.max > min)
		snprintf(out + used, 48 - (size_t)used, "-%lld", (long long)job->slurm.nodes.max);
	return out;
}

/* A run on the fewest nodes of a range keeps its layout, or has a lower dp, or is planned again, as
 * restart.shrink says. */
static int check_range(const struct rule_job *j)
{
	static const size_t keys[] = { AT(slurm, nodes),    AT(slurm, gpus_per_node),
				       AT(restart, shrink), AT(parallel, tp),
				       AT(parallel, cp),    AT(parallel, pp),
				       AT(parallel, dp),    AT(parallel, ep) };
	const struct job *job = j->job;
	const struct job_range *nodes = &job->slurm.nodes;
	struct layout least = layout_of(job, (int)job->parallel.ep);
	int64_t gpus = nodes->min * job->slurm.gpus_per_node;
	bool keep = job->restart.shrink == SHRINK_KEEP;
	int64_t ranks = keep ? world(job) : layout_world(&least);
	char use[48];
	if (nodes->min == nodes->max || !gpus || job->launch.launcher == LAUNCHER_LOCAL ||
	    job->restart.shrink == SHRINK_ANY || gpus >= ranks)
		return 0;
	if (keep)
		return REFUSE(
			j, keys,
			"the fewest nodes, %lld, have %lld GPUs for the %lld ranks of tp × cp "
			"× pp × dp, and shrink = keep allows no other layout; use nodes = "
			"%s, or shrink = dp",
			(long long)nodes->min, (long long)gpus, (long long)ranks,
			range_for(job, ranks, use));
	return REFUSE(j, keys,
		      "the fewest nodes, %lld, have %lld GPUs for the %lld ranks of tp × cp × pp × "
		      "ep, the lowest to which shrink = dp goes; use nodes = %s, or shrink = any",
		      (long long)nodes->min, (long long)gpus, (long long)ranks,
		      range_for(job, ranks, use));
}

static int check_all(const struct rule_job *j, rule *const *rules)
{
	for (; *rules; rules++)
		if ((*rules)(j))
			return -1;
	return 0;
}

int job_rules_degrees(const struct rule_job *j)
{
	static rule *const rules[] = { check_world, check_ep, check_launch, check_range, NULL };
	return check_all(j, rules);
}

int job_rules_parallel(const struct rule_job *j)
{
	static rule *const rules[] = {
		check_world,  check_tp,       check_cp,     check_experts, check_ep,
		check_sp,     check_schedule, check_stages, check_lists,   check_shares,
		check_launch, check_range,    NULL,
	};
	return check_all(j, rules);
}
