/* parts — what the files of launcher/slurm/rest/ share. For these files and their tests only. */
#ifndef MUSTER_LAUNCHER_SLURM_REST_PARTS_H
#define MUSTER_LAUNCHER_SLURM_REST_PARTS_H

#include "base/buf.h"
#include "launcher/slurm/rest/rest.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
	REST_OLDEST = 38, /* v0.0.38, which takes options of sbatch */
	REST_NEWEST = 45, /* the newest version whose specification is public */
	REST_TOKEN = 8000,
	REST_USER = 64,
};

struct slurm_rest {
	char url[512];          /* without a / at the end */
	char socket[108];       /* "": none */
	char ca_file[PATH_MAX]; /* "": the system's */
	char shown[512];        /* the server, for messages */
	char user[REST_USER];
	char token[REST_TOKEN];
	int version;    /* 0: not yet asked */
	double total_s; /* for one try of a request; 0: the default. For tests */
};

/* --- connect.c --- */

/* Reads the address. */
int slurm_rest_locate(const char *url, struct slurm_rest *r, struct err *e);
/* What a token says about itself. Any text is allowed; it is not verified, since the server does that.
 * expires: 0: unknown. user: "": unknown. */
void slurm_rest_token_claims(const char *token, time_t *expires, char user[REST_USER]);

/* --- call.c --- */

struct rest_call {
	const char *method; /* "GET" */
	const char *path;   /* "/openapi/v3"; "job/7" is below /slurm/v0.0.N/ */
	const json_t *body; /* NULL: none */
	bool keep_errors;   /* the caller reads `errors` of an answer that has other members */
};

/* The answer is a JSON object, which the caller frees. ERR_NOTFOUND: the server does not know this
 * path. A request is sent again, at most twice, if the connection broke and that is harmless.
 * *sent: whether the server may have acted on it; may be NULL. */
int slurm_rest_call(struct slurm_rest *r, const struct rest_call *c, json_t **answer, bool *sent,
		    struct err *e);
/* Appends what the list `name` of an answer says, "errors" or "warnings", for people. */
void slurm_rest_messages(const json_t *answer, const char *name, struct buf *out);

/* --- describe.c --- */

struct rest_script {
	const char *text;
	const char *dependency;   /* replaces the script's; NULL: the script's */
	const char *cwd;          /* folder that the job starts in */
	char *const *environment; /* secrets are left out */
	int version;
};

/* The body of the request that submits the script. NULL: an error. */
json_t *slurm_rest_describe(const struct rest_script *s, struct buf *notes, struct err *e);
/* The body of the request that changes a job. NULL: no memory. */
json_t *slurm_rest_describe_change(const struct queue_change *c, int version);

/* --- fields.c --- */

/* A job description that is being written. */
struct describing {
	json_t *job;
	int version;
	int64_t min_nodes, max_nodes;
	int64_t tasks, cpus; /* per node, per task; 0: none given */
	struct buf *notes;
};

enum { REST_VALUE = 4096 };

/* v0.0.38, which takes options; later versions take fields. */
static inline bool slurm_rest_is_old(const struct describing *d)
{
	return d->version == REST_OLDEST;
}

/* Sets a member. Takes over `value`; NULL is no memory. */
int slurm_rest_set(struct describing *d, const char *key, json_t *value, struct err *e);
/* A number as an object {set, infinite, number}. */
int slurm_rest_set_number(struct describing *d, const char *key, int64_t n, bool infinite,
			  struct err *e);
/* The option `name` without --; value: NULL: it has none. */
int slurm_rest_put_option(struct describing *d, const char *name, const char *value, struct err *e);

/* --- answers.c --- */

/* The member at a path of names separated by '/'; NULL: none. */
const json_t *slurm_rest_at(const json_t *o, const char *path);
/* The text at the path, or the first text of a list there; "": none. */
const char *slurm_rest_text(const json_t *o, const char *path);
/* The number at the path, which may be an object {set, infinite, number}. false: it is missing, not
 * set, infinite, or negative. */
bool slurm_rest_number(const json_t *o, const char *path, int64_t *out);

/* The highest version in the paths of an OpenAPI description that this program knows. ERR_PROTO: none;
 * ERR_UNSUPPORTED: only others. */
int slurm_rest_read_version(const json_t *openapi, int *version, struct err *e);
int slurm_rest_read_job(const json_t *answer, const char *id, struct queue_job *out, struct err *e);
int slurm_rest_read_site(const json_t *partitions, const json_t *nodes, struct site *out,
			 struct err *e);

#endif
