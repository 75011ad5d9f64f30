#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char *library_symbols(void *loaded, const struct library_symbol *symbols, int count,
			    void *table)
{
	const char *missing = NULL;
	for (int i = 0; i < count; i++) {
		void *at = dlsym(loaded, symbols[i].name);
		memcpy((char *)table + symbols[i].offset, &at, sizeof at);
		if (!at && !symbols[i].optional && !missing)
			missing = symbols[i].name;
	}
	return missing;
}

/* why: the error of the first file, the one that most hosts have. */
static void *open_first(const struct library *l, char *why, size_t size)
{
	void *loaded = NULL;
	for (int i = 0; i < LIBRARY_FILES && l->files[i] && !loaded; i++)
		if (!(loaded = dlopen(l->files[i], RTLD_NOW | RTLD_LOCAL)) && i == 0)
			snprintf(why, size, "%s", dlerror());
	return loaded;
}

static int load(struct library *l, struct err *e)
{
	char why[400] = "";
	void *loaded = open_first(l, why, sizeof why);
	if (!loaded)
		return err_set(e, l->code, "%s cannot be loaded on this host (%s); %s", l->name,
			       why, l->remedy);
	const char *missing = library_symbols(loaded, l->symbols, l->count, l->table);
	if (missing) {
		dlclose(loaded);
		return err_set(e, ERR_UNSUPPORTED,
			       "%s cannot be used on this host (it has no %s); %s", l->name,
			       missing, l->remedy);
	}
	return l->start ? l->start(e) : 0;
}

int library_load(struct library *l, struct err *e)
{
	pthread_mutex_lock(&l->lock);
	if (!l->tried)
		load(l, &l->failure);
	l->tried = true;
	pthread_mutex_unlock(&l->lock);
	return l->failure.code ? err_set(e, l->failure.code, "%s", l->failure.text) : 0;
}
