#include "launcher/slurm/rest/rest.h"

#include "launcher/slurm/queue.h"
#include "launcher/slurm/rest/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int check_id(const char *id, struct err *e)
{
	size_t n = strlen(id);
	if (n == 0 || n >= LAUNCH_JOB_ID || strspn(id, "0123456789") != n)
		return err_set(e, ERR_USAGE, "\"%.40s\" is not the id of a job; use a number", id);
	return 0;
}

/* The answer has the id if the job is in the queue; `errors` are then what Slurm warns of. */
static int read_id(const json_t *answer, char id[LAUNCH_JOB_ID], struct buf *notes, struct err *e)
{
	int64_t n = 0;
	struct buf said = BUF_INIT;
	const char *message = slurm_rest_text(answer, "job_submit_user_msg");
	slurm_rest_messages(answer, "errors", &said);
	if (!slurm_rest_number(answer, "job_id", &n))
		slurm_rest_number(answer, "result/job_id", &n);
	if (n <= 0 || n > UINT32_MAX) {
		const char *why = said.len ? buf_str(&said)
					   : "its answer has no job id; is [slurm] rest the "
					     "address of slurmrestd?";
		err_set(e, ERR_PROTO, "Slurm did not queue the job: %.600s%s", why,
			slurm_queue_remedy(why));
		buf_fini(&said);
		return -1;
	}
	slurm_rest_messages(answer, "warnings", &said);
	snprintf(id, LAUNCH_JOB_ID, "%lld", (long long)n);
	if (said.len)
		buf_printf(notes, "Slurm says: %.600s\n", buf_str(&said));
	if (*message)
		buf_printf(notes, "Slurm says: %.400s\n", message);
	buf_fini(&said);
	return 0;
}

int slurm_rest_submit(struct slurm_rest *r, const char *script, const char *dependency,
		      char id[LAUNCH_JOB_ID], struct buf *notes, struct err *e)
{
	char cwd[PATH_MAX];
	if (!getcwd(cwd, sizeof cwd))
		return err_errno(e, ERR_IO, "cannot read the path of the current folder");
	char **environment = slurm_queue_environment();
	if (!environment)
		return err_set(e, ERR_NOMEM, "no memory for the environment of the job");
	const struct rest_script s = { .text = script,
				       .dependency = dependency,
				       .cwd = cwd,
				       .environment = environment,
				       .version = r->version };
	json_t *body = slurm_rest_describe(&s, notes, e), *answer = NULL;
	free(environment);
	bool sent = false;
	struct err why = ERR_INIT;
	if (!body)
		return -1;
	const struct rest_call c = { "POST", "job/submit", body, true };
	int rc = slurm_rest_call(r, &c, &answer, &sent, &why);
	bool lost = why.code == ERR_TIMEOUT || why.code == ERR_NET;
	if (rc)
		err_set(e, why.code, "%.850s%s", why.text,
			sent && lost ? ". The job may be in the queue all the same: look there "
				       "before you "
				       "submit again"
				     : "");
	else
		rc = read_id(answer, id, notes, e);
	json_decref(answer);
	json_decref(body);
	return rc;
}

int slurm_rest_show(struct slurm_rest *r, const char *id, struct queue_job *out, struct err *e)
{
	char path[64];
	json_t *answer = NULL;
	if (check_id(id, e))
		return -1;
	snprintf(path, sizeof path, "job/%s", id);
	const struct rest_call c = { "GET", path, NULL, false };
	if (slurm_rest_call(r, &c, &answer, NULL, e))
		return err_prefix(e, "job %s", id);
	int rc = slurm_rest_read_job(answer, id, out, e);
	json_decref(answer);
	return rc;
}

/* Since v0.0.42 the answer can list jobs for which the request failed, without an entry in `errors`. */
static int check_jobs(const json_t *answer, struct err *e)
{
	static const struct {
		const char *list, *code, *text, *other;
	} lists[] = {
		{ "status", "error/code", "error/string", "error/message" },
		{ "results", "error_code", "error", "why" },
	};
	const json_t *item;
	size_t k;
	int64_t code;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		json_array_foreach(json_object_get(answer, lists[i].list), k, item)
		{
			const char *text = slurm_rest_text(item, lists[i].text);
			const char *other = slurm_rest_text(item, lists[i].other);
			if (slurm_rest_number(item, lists[i].code, &code) && code != 0)
				return err_set(e, ERR_IO,
					       "Slurm refuses the request: %.300s%s%.300s%s", text,
					       *text && *other ? ": " : "", other,
					       slurm_queue_remedy(text));
		}
	return 0;
}

/* A request whose answer says nothing but errors. */
static int order(struct slurm_rest *r, const char *id, const struct rest_call *c, struct err *e)
{
	json_t *answer = NULL;
	int rc = slurm_rest_call(r, c, &answer, NULL, e);
	rc = rc ? rc : check_jobs(answer, e);
	json_decref(answer);
	return rc ? err_prefix(e, "job %s", id) : 0;
}

int slurm_rest_update(struct slurm_rest *r, const char *id, const struct queue_change *c,
		      struct err *e)
{
	char path[64];
	if (check_id(id, e))
		return -1;
	snprintf(path, sizeof path, "job/%s", id);
	json_t *body = slurm_rest_describe_change(c, r->version);
	if (!body)
		return err_set(e, ERR_USAGE,
			       "job %s: a text of the change is not UTF-8, or there is no memory",
			       id);
	const struct rest_call call = { "POST", path, body, false };
	int rc = order(r, id, &call, e);
	json_decref(body);
	return rc;
}

int slurm_rest_cancel(struct slurm_rest *r, const char *id, int signal, struct err *e)
{
	char path[64];
	if (check_id(id, e))
		return -1;
	snprintf(path, sizeof path, "job/%s", id);
	if (signal > 0)
		snprintf(path, sizeof path, "job/%s?signal=%d", id, signal);
	const struct rest_call call = { "DELETE", path, NULL, false };
	return order(r, id, &call, e);
}

int slurm_rest_site(struct slurm_rest *r, struct site *out, struct err *e)
{
	const struct rest_call ask_partitions = { "GET", "partitions", NULL, false };
	const struct rest_call ask_nodes = { "GET", "nodes", NULL, false };
	json_t *partitions = NULL, *nodes = NULL;
	int rc = slurm_rest_call(r, &ask_partitions, &partitions, NULL, e) ||
				 slurm_rest_call(r, &ask_nodes, &nodes, NULL, e) ||
				 slurm_rest_read_site(partitions, nodes, out, e)
			 ? -1
			 : 0;
	json_decref(nodes);
	json_decref(partitions);
	return rc;
}
