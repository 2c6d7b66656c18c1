/* The start of a Cortex-M4, and semihosting: calls of the emulator or of the debugger. */
#include "board.h"
#include <stdint.h>

#define CPACR (*(volatile uint32_t *)0xE000ED88u)

extern uint32_t data_start, data_end, data_load, bss_start, bss_end, stack_top;
int main(void);
void reset_handler(void);
static void stop(void);

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (const void *)reset_handler, (const void *)stop, (const void *)stop,
    (const void *)stop, (const void *)stop, (const void *)stop,
};

static uint32_t semihosting(uint32_t operation, const void *argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void board_print(const char *text)
{
    (void)semihosting(0x04, text);
}

void board_exit(int status)
{
    const uint32_t reason[2] = {0x20026, (uint32_t)status};
    (void)semihosting(0x20, reason);
}

static void stop(void)
{
    board_print("the processor has stopped at a fault\n");
    board_exit(70);
    for (;;) {
    }
}

void reset_handler(void)
{
    CPACR |= 0xFu << 20; /* the floating-point unit */
    const uint32_t *from = &data_load;
    for (uint32_t *to = &data_start; to < &data_end; to++) {
        *to = *from++;
    }
    for (uint32_t *to = &bss_start; to < &bss_end; to++) {
        *to = 0;
    }
    board_exit(main());
}
