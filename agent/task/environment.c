#include "agent/task/environment.h"

#include "base/agent_env.h"
#include "base/buf.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_MAX = 64 << 10 };

/* When a row of the table applies. */
enum when {
	ALWAYS,  /* it replaces what the user has set */
	UNSET,   /* the user has set neither it nor the row's other name */
	PRESENT, /* it is there: it becomes the task's own */
	NEVER,   /* it is removed */
};

/* What a row needs besides. */
enum need { ANY, CUDA, PMIX };

/* A '%' and a letter in `text` is a field of the task's place, by `fields`. A row with an empty field
 * does not set its variable; ALWAYS still removes it. A name that ends with '*' stands for all that
 * begin so. */
struct variable {
	const char *name;
	enum when when;
	enum need need;
	const char *text;
	const char *other; /* another name of the same setting, or one that excludes this one */
};

/* clang-format off */
static const struct variable table[] = {
	/* torchrun */
	{ "RANK",                          ALWAYS,  ANY,  "%r",      NULL },
	{ "WORLD_SIZE",                    ALWAYS,  ANY,  "%w",      NULL },
	{ "LOCAL_RANK",                    ALWAYS,  ANY,  "%x",      NULL },
	{ "LOCAL_WORLD_SIZE",              ALWAYS,  ANY,  "%n",      NULL },
	{ "GROUP_RANK",                    ALWAYS,  ANY,  "%g",      NULL },
	{ "GROUP_WORLD_SIZE",              ALWAYS,  ANY,  "%G",      NULL },
	{ "NODE_RANK",                     ALWAYS,  ANY,  "%g",      NULL },
	{ "ROLE_NAME",                     ALWAYS,  ANY,  "default", NULL },
	{ "ROLE_RANK",                     ALWAYS,  ANY,  "%r",      NULL },
	{ "ROLE_WORLD_SIZE",               ALWAYS,  ANY,  "%w",      NULL },
	{ "MASTER_ADDR",                   ALWAYS,  ANY,  "%a",      NULL },
	{ "MASTER_PORT",                   ALWAYS,  ANY,  "%p",      NULL },
	{ "TORCHELASTIC_RESTART_COUNT",    ALWAYS,  ANY,  "%c",      NULL },
	{ "TORCHELASTIC_MAX_RESTARTS",     ALWAYS,  ANY,  "%C",      NULL },
	{ "TORCHELASTIC_RUN_ID",           ALWAYS,  ANY,  "%i",      NULL },
	{ "TORCHELASTIC_USE_AGENT_STORE",  ALWAYS,  ANY,  "False",   NULL },
	{ "TORCHELASTIC_ERROR_FILE",       ALWAYS,  ANY,  "%e",      NULL },
	/* mpirun */
	{ "OMPI_COMM_WORLD_SIZE",          ALWAYS,  ANY,  "%w",      NULL },
	{ "OMPI_COMM_WORLD_RANK",          ALWAYS,  ANY,  "%r",      NULL },
	{ "OMPI_COMM_WORLD_LOCAL_SIZE",    ALWAYS,  ANY,  "%n",      NULL },
	{ "OMPI_COMM_WORLD_LOCAL_RANK",    ALWAYS,  ANY,  "%l",      NULL },
	{ "OMPI_COMM_WORLD_NODE_RANK",     ALWAYS,  ANY,  "%l",      NULL },
	{ "OMPI_UNIVERSE_SIZE",            ALWAYS,  ANY,  "%w",      NULL },
	{ "OMPI_APP_CTX_NUM_PROCS",        ALWAYS,  ANY,  "%w",      NULL },
	{ "OMPI_NUM_APP_CTX",              ALWAYS,  ANY,  "1",       NULL },
	{ "OMPI_FIRST_RANKS",              ALWAYS,  ANY,  "0",       NULL },
	{ "OMPI_MCA_schizo",               UNSET,   PMIX, "^orte",   NULL },
	/* JAX */
	{ "JAX_COORDINATOR_ADDRESS",       ALWAYS,  ANY,  "%A:%j",   NULL },
	{ "JAX_NUM_PROCESSES",             ALWAYS,  ANY,  "%w",      NULL },
	{ "JAX_PROCESS_ID",                ALWAYS,  ANY,  "%r",      NULL },
	{ "JAX_LOCAL_DEVICE_IDS",          ALWAYS,  CUDA, "%x",      NULL },
	/* devices */
	{ "CUDA_VISIBLE_DEVICES",          ALWAYS,  CUDA, "%v",      NULL },
	{ "CUDA_DEVICE_ORDER",             ALWAYS,  CUDA, "PCI_BUS_ID", NULL },
	/* Slurm's, of the agent's step */
	{ "SLURM_PROCID",                  PRESENT, ANY,  "%r",      NULL },
	{ "SLURM_LOCALID",                 PRESENT, ANY,  "%l",      NULL },
	{ "SLURM_NODEID",                  PRESENT, ANY,  "%g",      NULL },
	{ "SLURM_NTASKS",                  PRESENT, ANY,  "%w",      NULL },
	{ "SLURM_NPROCS",                  PRESENT, ANY,  "%w",      NULL },
	{ "SLURM_STEP_NUM_TASKS",          PRESENT, ANY,  "%w",      NULL },
	{ "SLURM_STEP_NUM_NODES",          PRESENT, ANY,  "%G",      NULL },
	{ "SLURM_NNODES",                  PRESENT, ANY,  "%G",      NULL },
	{ "SLURM_NTASKS_PER_NODE",         NEVER,   ANY,  "",        NULL },
	/* threads and networks; NCCL takes "=" as the whole name */
	{ "OMP_NUM_THREADS",               UNSET,   ANY,  "%t",      NULL },
	{ "NCCL_SOCKET_IFNAME",            UNSET,   ANY,  "=%f",     NULL },
	{ "GLOO_SOCKET_IFNAME",            UNSET,   ANY,  "%f",      NULL },
	{ "TP_SOCKET_IFNAME",              UNSET,   ANY,  "%f",      NULL },
	{ "OMPI_MCA_btl_tcp_if_include",   UNSET,   ANY,  "%f",      "OMPI_MCA_btl_tcp_if_exclude" },
	{ "OMPI_MCA_oob_tcp_if_include",   UNSET,   ANY,  "%f",      "OMPI_MCA_oob_tcp_if_exclude" },
	/* PyTorch's flight recorder: newer releases read TORCH_FR_, older ones TORCH_NCCL_. It appends the
	 * rank, and ".pipe" to the pipe's name (base/run_paths.h). The old name of the buffer's size would
	 * cause a warning in each task, and 2000 is its default since PyTorch 2.5. */
	{ "TORCH_NCCL_ASYNC_ERROR_HANDLING", UNSET, ANY,  "1",       "NCCL_ASYNC_ERROR_HANDLING" },
	{ "TORCH_FR_BUFFER_SIZE",          UNSET,   ANY,  "2000",    "TORCH_NCCL_TRACE_BUFFER_SIZE" },
	{ "TORCH_FR_DUMP_TEMP_FILE",       UNSET,   ANY,  "%T/torch-", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" },
	{ "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", UNSET, ANY,  "%T/torch-", "TORCH_FR_DUMP_TEMP_FILE" },
	{ "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", UNSET, ANY,  "%q/torch-", NULL },
	/* Python: output at once, and a traceback at a crash */
	{ "PYTHONUNBUFFERED",              UNSET,   ANY,  "1",       NULL },
	{ "PYTHONFAULTHANDLER",            UNSET,   ANY,  "1",       NULL },
	/* muster */
	{ AGENT_ENV_DRILL_FAULT,           NEVER,   ANY,  "",        NULL },
	{ "MUSTER_*",                      NEVER,   ANY,  "",        NULL },
	{ "MUSTER_PLAN",                   ALWAYS,  ANY,  "%P",      NULL },
	{ "MUSTER_RUN_DIR",                ALWAYS,  ANY,  "%R",      NULL },
};
/* clang-format on */

enum { ROWS = sizeof table / sizeof *table };

static const char python_path[] = "PYTHONPATH";

static const struct field {
	char letter;
	enum { NUMBER, TEXT } type;
	size_t offset;
} fields[] = {
	{ 'r', NUMBER, offsetof(struct task_place, rank) },
	{ 'w', NUMBER, offsetof(struct task_place, world) },
	{ 'l', NUMBER, offsetof(struct task_place, local_rank) },
	{ 'n', NUMBER, offsetof(struct task_place, local_world) },
	{ 'g', NUMBER, offsetof(struct task_place, group_rank) },
	{ 'G', NUMBER, offsetof(struct task_place, group_world) },
	{ 'a', TEXT, offsetof(struct task_place, master_addr) },
	{ 'p', NUMBER, offsetof(struct task_place, master_port) },
	{ 'j', NUMBER, offsetof(struct task_place, coordinator_port) },
	{ 'i', TEXT, offsetof(struct task_place, run_id) },
	{ 'c', NUMBER, offsetof(struct task_place, restarts) },
	{ 'C', NUMBER, offsetof(struct task_place, max_restarts) },
	{ 't', NUMBER, offsetof(struct task_place, threads) },
	{ 'T', TEXT, offsetof(struct task_place, trace_dir) },
	{ 'q', TEXT, offsetof(struct task_place, pipe_dir) },
	{ 'e', TEXT, offsetof(struct task_place, error_file) },
	{ 'R', TEXT, offsetof(struct task_place, run_dir) },
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

/* The fields that more than one member decides. */
static void put_chosen(const struct task_place *p, char letter, struct buf *out)
{
	bool own = p->cuda && p->visible == TASK_SEES_OWN;
	switch (letter) {
	case 'A': /* an address before a port */
		buf_printf(out, strchr(p->master_addr, ':') ? "[%s]" : "%s", p->master_addr);
		break;
	case 'f':
		buf_puts(out, *p->interface ? p->interface : p->one_host ? "lo" : "");
		break;
	case 'v':
		buf_puts(out, own ? p->device : p->devices);
		break;
	case 'x': /* the index of the device among those that the task sees */
		buf_printf(out, "%d", own ? 0 : p->local_rank);
		break;
	case 'P':
		buf_puts(out, strlen(p->plan_json) <= PLAN_MAX ? p->plan_json : "");
		break;
	}
}

static void put_member(const struct task_place *p, const struct field *f, struct buf *out)
{
	const char *at = (const char *)p + f->offset, *text;
	int number;
	if (f->type == TEXT) {
		memcpy(&text, at, sizeof text);
		buf_puts(out, text);
		return;
	}
	memcpy(&number, at, sizeof number);
	if (number >= 0)
		buf_printf(out, "%d", number);
}

/* Appends the field; false: it is empty. */
static bool put_field(const struct task_place *p, char letter, struct buf *out)
{
	size_t from = out->len, i = 0;
	while (i < N_FIELDS && fields[i].letter != letter)
		i++;
	if (i < N_FIELDS)
		put_member(p, &fields[i], out);
	else
		put_chosen(p, letter, out);
	return out->len > from;
}

/* Appends "NAME=value"; false, and nothing is appended, if a field is empty. */
static bool put_variable(const struct variable *v, const struct task_place *p, struct buf *out)
{
	size_t from = out->len;
	buf_printf(out, "%s=", v->name);
	for (const char *c = v->text; *c; c++) {
		if (*c != '%') {
			buf_add(out, c, 1);
		} else if (!put_field(p, *++c, out)) {
			out->len = from;
			return false;
		}
	}
	buf_add(out, "", 1);
	return true;
}

/* The value of NAME in an environment, or NULL. */
static const char *find_value(char *const *env, const char *name)
{
	size_t n = strlen(name);
	for (; *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

static bool is_needed(const struct variable *v, const struct task_place *p)
{
	return v->need == ANY || (v->need == CUDA && p->cuda) || (v->need == PMIX && p->pmix);
}

static bool is_set(const struct variable *v, const struct task_place *p, char *const *base)
{
	if (!is_needed(v, p) || v->when == NEVER)
		return false;
	if (v->when == PRESENT)
		return find_value(base, v->name);
	return v->when == ALWAYS ||
	       (!find_value(base, v->name) && !(v->other && find_value(base, v->other)));
}

/* Whether "NAME=value" is a variable of that name. */
static bool is_named(const char *word, const char *name)
{
	size_t n = strcspn(name, "*");
	return !strncmp(word, name, n) && (name[n] == '*' || word[n] == '=');
}

/* Whether a variable of the base does not pass to the task as it is. */
static bool is_dropped(const char *word, const struct task_place *p)
{
	if (!strchr(word, '=') || *word == '=' || (*p->client_dir && is_named(word, python_path)) ||
	    (!p->pmix && is_named(word, "PMIX_*")))
		return true;
	for (size_t i = 0; i < ROWS; i++)
		if (table[i].when != UNSET && is_needed(&table[i], p) &&
		    is_named(word, table[i].name))
			return true;
	return false;
}

static void put_python_path(char *const *base, const char *client_dir, struct buf *out)
{
	const char *before = find_value(base, python_path);
	if (!*client_dir)
		return;
	buf_printf(out, "%s=%s%s%s", python_path, before ? before : "",
		   before && *before ? ":" : "", client_dir);
	buf_add(out, "", 1);
}

/* Makes the list of `n` variables out of their text, in one piece of memory. */
static char **list_variables(const struct buf *text, size_t n)
{
	char **list = malloc((n + 1) * sizeof *list + text->len);
	if (!list)
		return NULL;
	char *at = memcpy(list + n + 1, text->data, text->len);
	for (size_t i = 0; i < n; i++, at += strlen(at) + 1)
		list[i] = at;
	list[n] = NULL;
	return list;
}

int task_environment(char *const *base, const struct task_place *p, char ***out, struct err *e)
{
	struct buf text = BUF_INIT;
	size_t n = 0;
	for (char *const *word = base; *word; word++)
		if (!is_dropped(*word, p))
			buf_add(&text, *word, strlen(*word) + 1);
	put_python_path(base, p->client_dir, &text);
	for (size_t i = 0; i < ROWS; i++)
		if (is_set(&table[i], p, base))
			put_variable(&table[i], p, &text);
	for (size_t i = 0; i < text.len; i++)
		n += !text.data[i];
	char **list = buf_failed(&text) ? NULL : list_variables(&text, n);
	buf_fini(&text);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for the environment of rank %d", p->rank);
	*out = list;
	return 0;
}
