/* Any bytes as the texts that come from outside to Slurm's REST interface and to `muster queue`. The
 * first byte chooses the reader:
 *
 *     v  the description of a server       j  a job                    e  a list of errors
 *     s  partitions, a line "=", nodes     b  a batch script           c  a line of scontrol
 *     t  a token                           u  an address
 */
#include "launcher/slurm/admit.h"
#include "launcher/slurm/controller.h"
#include "launcher/slurm/rest/parts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_version(const char *text)
{
	json_t *o = json_loads(text, 0, NULL);
	struct err e = ERR_INIT;
	int version = 0;
	if (slurm_rest_read_version(o, &version, &e)
		    ? !e.text[0]
		    : version < REST_OLDEST || version > REST_NEWEST)
		abort();
	json_decref(o);
}

static void check_job(int rc, const struct queue_job *j, const struct err *e)
{
	if (rc ? !e->text[0] : !j->state[0] || strcmp(j->id, "7") || j->limit < 0 || j->n_nodes < 0)
		abort();
}

static void read_job(const char *text)
{
	json_t *o = json_loads(text, 0, NULL);
	struct err e = ERR_INIT;
	struct queue_job j;
	check_job(slurm_rest_read_job(o, "7", &j, &e), &j, &e);
	json_decref(o);
}

static void read_line(const char *text)
{
	struct err e = ERR_INIT;
	struct queue_job j;
	check_job(slurm_commands_read_job(text, "7", &j, &e), &j, &e);
}

static void read_errors(const char *text)
{
	json_t *o = json_loads(text, 0, NULL);
	struct buf said = BUF_INIT;
	slurm_rest_messages(o, "errors", &said);
	buf_fini(&said);
	json_decref(o);
}

/* A job is compared with the cluster. */
static void read_site(char *text)
{
	static const char *const words[] = { "slurm.nodes=2-4", "slurm.nodelist=n3",
					     "slurm.exclude=n[1-2]", "slurm.gpus_per_node=1" };
	static struct job job;
	static bool loaded;
	struct script_size size;
	struct site site;
	struct buf warnings = BUF_INIT;
	struct err e = ERR_INIT;
	char *cut = strstr(text, "\n=\n");
	if (!loaded && job_load(NULL, words, sizeof words / sizeof *words, &job, &e))
		abort();
	loaded = true;
	if (slurm_script_size(&job, &size, &e))
		abort();
	if (cut)
		*cut = '\0';
	json_t *partitions = json_loads(text, 0, NULL);
	json_t *nodes = cut ? json_loads(cut + 3, 0, NULL) : NULL;
	if (!slurm_rest_read_site(partitions, nodes, &site, &e)) {
		if (slurm_admit(&job, &size, &site, &warnings, &e) && !e.text[0])
			abort();
		slurm_site_free(&site);
	} else if (!e.text[0]) {
		abort();
	}
	buf_fini(&warnings);
	json_decref(partitions);
	json_decref(nodes);
}

static void read_script(const char *text)
{
	static const int versions[] = { REST_OLDEST, 39, REST_NEWEST };
	char *environment[] = { (char *)(uintptr_t)text, (char *)(uintptr_t) "A=B", NULL };
	for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
		struct rest_script s = { .text = text,
					 .dependency = i ? "singleton" : NULL,
					 .cwd = "/",
					 .environment = environment,
					 .version = versions[i] };
		struct err e = ERR_INIT;
		struct buf notes = BUF_INIT;
		json_t *body = slurm_rest_describe(&s, &notes, &e);
		if (body ? !json_is_object(json_object_get(body, "job")) : !e.text[0])
			abort();
		json_decref(body);
		buf_fini(&notes);
	}
}

static void read_token(const char *text)
{
	time_t expires;
	char user[REST_USER];
	slurm_rest_token_claims(text, &expires, user);
	if (expires < 0 || strlen(user) >= REST_USER)
		abort();
}

static void read_address(const char *text)
{
	struct slurm_rest r = { .version = 0 };
	struct err e = ERR_INIT;
	if (slurm_rest_locate(text, &r, &e) ? !e.text[0] : !r.url[0] || !r.shown[0])
		abort();
	/* Nothing but a loopback address is reached without TLS. */
	if (!strncmp(r.url, "http://", 7) && strncmp(r.url, "http://127.", 11) &&
	    strncasecmp(r.url, "http://localhost", 16) && strncmp(r.url, "http://[::1]", 12))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = size ? strndup((const char *)data + 1, size - 1) : NULL;
	if (!text)
		return 0;
	switch (data[0]) {
	case 'v':
		read_version(text);
		break;
	case 'j':
		read_job(text);
		break;
	case 'e':
		read_errors(text);
		break;
	case 's':
		read_site(text);
		break;
	case 'b':
		read_script(text);
		break;
	case 'c':
		read_line(text);
		break;
	case 't':
		read_token(text);
		break;
	case 'u':
		read_address(text);
		break;
	}
	free(text);
	return 0;
}
