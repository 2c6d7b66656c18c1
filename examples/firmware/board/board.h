/* What the firmware needs of its board. */
#ifndef BOARD_H
#define BOARD_H

/* Print text, without a line break. */
void board_print(const char *text);

/* Stop the emulator with a status. */
void board_exit(int status);

#endif
