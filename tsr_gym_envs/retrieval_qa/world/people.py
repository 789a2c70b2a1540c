"""How people are written and asked about; `grammar` reads the lines."""

PEOPLE = """
kind person
word praise noted|respected|prolific|celebrated|influential|reclusive|versatile|self-taught|outspoken
word habit long walks|chess|gardening|birdwatching|rowing|watercolours|clockmaking|beekeeping|cooking
word virtue patience|precision|stubbornness|quick wit|modesty|generosity|discipline|restlessness
call {name}
open {name} {is} {a praise} {trade}.
open {name} {is} {a trade} whose work drew wide attention.
open {A trade} by profession, {name} became known well beyond {his} own region.
open Few {trade}s of that generation were as widely discussed as {name}.
open {name} made a name for {himself} as {a trade} early in life.
alias {s} is often credited as {alias}.
alias Friends and critics alike called {him} {alias}.
alias In most reference works {he} appears as {alias}.
filler Colleagues remembered {him} for {his} {virtue} and {his} love of {habit}.
filler Away from work, {he} was devoted to {habit}.
filler {s} rarely gave interviews and preferred {habit} to public life.
filler A short biography praised {his} {virtue}, though reviewers found the book too kind.
filler Much of {his} correspondence survives in private hands.
filler As {a trade}, {he} was admired for {virtue} rather than for spectacle.
filler {s} often said that {virtue} mattered more than talent.

relation born_in city
tell {s} was born in {o}.
tell Born in {o}, {he} showed an early gift for the work.
tell {His} birthplace is {o}.
noun the city where {x} was born
noun the birthplace of {x}
ask In which city was {x} born?
ask What is the birthplace of {x}?
ask {x} was born in which city?
find birthplace city born
same Were {a} and {b} born in the same city?
same Do {a} and {b} share a birthplace?

relation birth_date date
tell {s} was born on {o}.
tell {His} date of birth is given as {o}.
tell Parish records list {o} as {his} date of birth.
ask When was {x} born?
ask What is the date of birth of {x}?
ask On which day was {x} born?
find date of birth
less was born first
more was born later
before Was {a} born before {b}?

relation father person
tell {His} father was {o}.
tell {s} was the {child} of {o}, whose example {he} followed reluctantly.
tell {s} inherited a large library from {his} father, {o}.
noun the father of {x}
ask Who was the father of {x}?
ask {x} was fathered by whom?
find father

relation mother person
tell {His} mother was {o}.
tell {s} was raised by {his} mother, {o}.
tell {s} owed {his} first lessons to {his} mother, {o}.
noun the mother of {x}
ask Who was the mother of {x}?
ask {x} was the child of which mother?
find mother

relation educated_at university
tell {s} studied at {o}.
tell {s} took a degree at {o}.
tell {s} completed {his} education at {o}.
noun the university that {x} attended
noun the university where {x} studied
noun the alma mater of {x}
ask Which university did {x} attend?
ask At which university did {x} study?
ask Where did {x} take a degree?
ask What is the alma mater of {x}?
find studied university degree
same Did {a} and {b} attend the same university?
same Are {a} and {b} graduates of the same university?

relation mentor person
tell {s} was a pupil of {o}.
tell {s} learned the profession under {o}.
tell {His} mentor was {o}, and the two remained close.
noun the mentor of {x}
noun the person under whom {x} learned the profession
ask Who was the mentor of {x}?
ask Under whom did {x} learn the profession?
find mentor pupil
same Did {a} and {b} have the same mentor?

relation spouse person
tell {s} married {o}.
tell {s} was married to {o}.
tell {His} spouse was {o}, whom {he} met at a dinner party.
noun the spouse of {x}
noun the person to whom {x} was married
ask Who was {x} married to?
ask Who is the spouse of {x}?
ask Whom did {x} marry?
find spouse married

relation settled_in city
tell {s} later settled in {o}.
tell {s} spent much of {his} adult life in {o}.
tell From middle age onward {he} made {his} home in {o}.
noun the city where {x} settled
noun the adopted home city of {x}
ask In which city did {x} settle?
ask Which city became the adopted home of {x}?
find settled home
same Did {a} and {b} settle in the same city?

relation death_year year
tell {s} died in {o}.
tell After a long illness, {he} died in {o}.
tell {s} continued to work until shortly before {his} death in {o}.
ask In what year did {x} die?
ask What was the year of death of {x}?
find died death
before Did {a} die before {b}?
"""
