#include "launcher/slurm/admission.h"

#include "base/human.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { YEAR_S = 365 * 86400 };

static const char *duration(int64_t s, char out[HUMAN])
{
	static const struct {
		int64_t seconds;
		const char *unit;
	} units[] = { { 86400, "day" }, { 3600, "hour" }, { 60, "minute" }, { 1, "second" } };
	size_t i = 0;
	while (i < 3 && s < units[i].seconds + units[i].seconds / 2)
		i++;
	int64_t n = (s + units[i].seconds / 2) / units[i].seconds;
	snprintf(out, HUMAN, "%lld %s%s", (long long)n, units[i].unit, human_s(n));
	return out;
}

static int check_state(const struct admission *a, struct err *e)
{
	const struct site_partition *p = a->p;
	if (!strcmp(p->state, "INACTIVE") || !strcmp(p->state, "DRAIN"))
		return ADMISSION_REFUSE(
			e,
			"[slurm] partition %s takes no new jobs (its state is %s); use another "
			"partition, or ask its administrators",
			p->name, p->state);
	if (!strcmp(p->state, "DOWN"))
		buf_printf(a->warnings,
			   "partition %s is down, so the job waits until its administrators start "
			   "it again\n",
			   p->name);
	return 0;
}

static int check_size(const struct admission *a, struct err *e)
{
	const struct site_partition *p = a->p;
	long long asked = a->size->min_nodes, most = a->size->max_nodes;
	bool spares = a->job->slurm.spares > 0;
	if (p->total > 0 && asked > p->total)
		return ADMISSION_REFUSE(
			e,
			"[slurm] nodes%s: %lld node%s are requested, but partition %s has %lld; "
			"request at most %lld, or use another partition",
			spares ? " + spares" : "", asked, human_s(asked), p->name,
			(long long)p->total, (long long)p->total);
	/* A QOS may have a limit of its own that replaces the partition's. */
	if (p->max_nodes > 0 && asked > p->max_nodes && !*a->job->slurm.qos)
		return ADMISSION_REFUSE(
			e,
			"[slurm] nodes%s: %lld node%s are requested, but partition %s allows a "
			"job %lld; request at most %lld, or use another partition",
			spares ? " + spares" : "", asked, human_s(asked), p->name,
			(long long)p->max_nodes, (long long)p->max_nodes);
	if (most < p->min_nodes && !*a->job->slurm.qos)
		return ADMISSION_REFUSE(
			e,
			"[slurm] nodes: %lld node%s are requested, but a job of partition %s "
			"needs at least %lld; use another partition",
			most, human_s(most), p->name, (long long)p->min_nodes);
	return 0;
}

static int check_time(const struct admission *a, struct err *e)
{
	const struct site_partition *p = a->p;
	const char *time = a->job->slurm.time;
	int64_t asked = slurm_script_time(a->job);
	char limit[HUMAN];
	if (!*time || p->max_time <= 0 || (asked > 0 && asked <= p->max_time))
		return 0;
	duration(p->max_time, limit);
	if (!*a->job->slurm.qos)
		return ADMISSION_REFUSE(
			e,
			"[slurm] time = %s is longer than the %s that partition %s allows; lower "
			"time (a run continues when it is submitted again), or use another "
			"partition",
			time, limit, p->name);
	buf_printf(
		a->warnings,
		"[slurm] time = %s is longer than the %s that partition %s allows; the job waits "
		"for ever unless qos %s permits more\n",
		time, limit, p->name, a->job->slurm.qos);
	return 0;
}

/* These limits hold for each node. A QOS cannot replace them. */
static int check_share(const struct admission *a, struct err *e)
{
	const struct site_partition *p = a->p;
	int64_t cpus = (int64_t)a->size->agents * a->size->cpus;
	if (p->max_cpus > 0 && cpus > p->max_cpus)
		return ADMISSION_REFUSE(
			e,
			"[slurm] cpus_per_task: %d agent%s with %d core%s each are requested on "
			"each "
			"node, and partition %s allows a job %lld cores per node; request more "
			"nodes, lower cpus_per_task, or use another partition",
			a->size->agents, human_s(a->size->agents), a->size->cpus,
			human_s(a->size->cpus), p->name, (long long)p->max_cpus);
	if (p->max_memory > 0 && slurm_script_memory(a->job) > p->max_memory)
		return ADMISSION_REFUSE(e,
					"[slurm] mem = %s: partition %s allows a job %lld MB per "
					"node; lower mem, or "
					"use another partition",
					a->job->slurm.mem, p->name, (long long)p->max_memory);
	return 0;
}

/* what: the key's name, such as "account". */
static int check_allowed(const struct admission *a, const char *what, const char *value,
			 const char *allowed, const char *denied, struct err *e)
{
	if (!*value)
		return 0;
	if (*allowed && !slurm_site_lists(allowed, value, strlen(value)))
		return ADMISSION_REFUSE(
			e,
			"[slurm] %s = %s may not use partition %s, which allows %.200s; use "
			"another %s or partition",
			what, value, a->p->name, allowed, what);
	if (slurm_site_lists(denied, value, strlen(value)))
		return ADMISSION_REFUSE(
			e,
			"[slurm] %s = %s may not use partition %s, which denies it; use another "
			"%s or partition",
			what, value, a->p->name, what);
	return 0;
}

static int check_account(const struct admission *a, struct err *e)
{
	return check_allowed(a, "account", a->job->slurm.account, a->p->allow_accounts,
			     a->p->deny_accounts, e);
}

static int check_qos(const struct admission *a, struct err *e)
{
	return check_allowed(a, "qos", a->job->slurm.qos, a->p->allow_qos, a->p->deny_qos, e);
}

/* Whether the association permits the account, the partition and the QOS of the job, as far as they are
 * compared: the first `n` of them. */
static bool permits(const struct site_association *s, const struct admission *a, int n)
{
	const char *account = a->job->slurm.account, *qos = a->job->slurm.qos;
	return (n < 1 || !*account || !strcasecmp(s->account, account)) &&
	       (n < 2 || !*s->partition || !strcasecmp(s->partition, a->p->name)) &&
	       (n < 3 || !*qos || !*s->qos || slurm_site_lists(s->qos, qos, strlen(qos)));
}

/* The accounts of the user, or the QOS of those associations that permit the first n. */
static void list_permitted(const struct admission *a, int n, struct buf *out)
{
	int listed = 0;
	for (int i = 0; i < a->site->n_associations && listed < ADMISSION_LISTED; i++) {
		const struct site_association *s = &a->site->associations[i];
		if (permits(s, a, n))
			buf_printf(out, "%s%.200s", listed++ ? ", " : "",
				   n == 2 ? s->qos : s->account);
	}
}

/* Where accounting is enforced, the user needs an association with all three. */
static int check_association(const struct admission *a, struct err *e)
{
	static const char *const remedies[] = { "account", "partition", "qos" };
	const struct site *site = a->site;
	struct buf list = BUF_INIT;
	int n = 0;
	for (bool any = site->n_associations > 0; any && n < 3; n += any) {
		any = false;
		for (int i = 0; i < site->n_associations && !any; i++)
			any = permits(&site->associations[i], a, n + 1);
	}
	if (n == 3 || !site->n_associations)
		return 0;
	list_permitted(a, n == 2 ? 2 : 0, &list);
	ADMISSION_REFUSE(e,
			 "[slurm] %s = %s: the cluster's accounting does not permit it to you; %s "
			 "%.300s; use another %s, or ask the site for it",
			 remedies[n],
			 n == 0   ? a->job->slurm.account
			 : n == 1 ? a->p->name
				  : a->job->slurm.qos,
			 n == 2 ? "you may use qos" : "your accounts are", buf_str(&list),
			 remedies[n]);
	buf_fini(&list);
	return -1;
}

static int (*const checks[])(const struct admission *a, struct err *e) = {
	check_state,           check_size, check_time,        check_share,
	check_account,         check_qos,  check_association, slurm_admission_nodelist,
	slurm_admission_nodes,
};

static const struct site_partition *find_partition(const struct site *site, const char *name,
						   size_t len)
{
	for (int i = 0; i < site->n_partitions; i++) {
		const struct site_partition *p = &site->partitions[i];
		if (len ? strlen(p->name) == len && !strncmp(p->name, name, len) : p->is_default)
			return p;
	}
	return NULL;
}

static int refuse_partition(const struct site *site, const char *name, size_t len, struct err *e)
{
	struct buf list = BUF_INIT;
	for (int i = 0; i < site->n_partitions && i < ADMISSION_LISTED; i++)
		buf_printf(&list, "%s%s", i ? ", " : "", site->partitions[i].name);
	if (len)
		ADMISSION_REFUSE(
			e, "[slurm] partition: there is no partition %.*s; the partitions are %s",
			(int)len, name, buf_str(&list));
	else
		ADMISSION_REFUSE(
			e, "[slurm] partition: the cluster has no default partition; use one of %s",
			buf_str(&list));
	buf_fini(&list);
	return -1;
}

static int admit_to(const struct admission *a, struct err *e)
{
	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
		if (checks[i](a, e))
			return -1;
	return 0;
}

int slurm_admit(const struct job *job, const struct script_size *size, const struct site *site,
		struct buf *warnings, struct err *e)
{
	const char *at = job->slurm.partition;
	bool admitted = false;
	struct err why = ERR_INIT;
	if (!site->n_partitions || (!*at && site->default_unknown))
		return 0;
	/* With several partitions Slurm takes the one that can start the job first. */
	do {
		size_t n = strcspn(at, ",");
		struct buf said = BUF_INIT;
		struct admission a = { job, size, site, find_partition(site, at, n), &said };
		if (!a.p) {
			refuse_partition(site, at, n, e);
			return -1;
		}
		if (!admit_to(&a, &why)) {
			buf_puts(warnings, admitted ? "" : buf_str(&said));
			admitted = true;
		}
		buf_fini(&said);
		at += n + (at[n] == ',');
	} while (*at);
	return admitted ? 0 : err_set(e, why.code, "%s", why.text);
}

void slurm_admit_wait(const char *test, time_t now, struct buf *out)
{
	time_t start;
	char wait[HUMAN], when[40];
	struct tm t;
	if (!slurm_site_start(test, &start)) {
		size_t n = strcspn(test, "\n");
		buf_printf(
			out,
			"Slurm cannot start the job on the nodes as they are now (%.*s); it waits "
			"until that changes\n",
			n > 0 && n < 200 ? (int)n : 200, n ? test : "no reason is known");
		return;
	}
	if (start - now > YEAR_S) {
		buf_puts(out, "Slurm cannot say when the job will start\n");
		return;
	}
	if (start - now < 60) {
		buf_puts(out, "Slurm expects to start the job now\n");
		return;
	}
	localtime_r(&start, &t);
	strftime(when, sizeof when, "%Y-%m-%d %H:%M", &t);
	buf_printf(out, "Slurm expects to start the job in about %s (%s)\n",
		   duration(start - now, wait), when);
}
