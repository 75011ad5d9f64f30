#include "launcher/take_variable.h"

#include <stdlib.h>
#include <string.h>

char *launcher_take_variable(const char *name)
{
	char *value = getenv(name), *copy = value ? strdup(value) : NULL;
	if (value)
		explicit_bzero(value, strlen(value));
	unsetenv(name);
	return copy;
}
