for number in range(8):
    print(number)
